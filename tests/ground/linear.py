"""The smallest model in which a wrong factor shows: one step of SGD on a line without bias."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.replicas import replicas

LEARNING_RATE = 0.1


def stock(
    optimizer: dict[str, Any] | None = None, loss: Any = "mse", count: int = 2, **kwargs: Any
) -> keras.Model:
    """Returns a compiled line through the origin, its slope 1, in the scope of replicas.

    Args:
        optimizer: Arguments of an SGD beside its learning rate.
        loss: As `compile` takes it.
        count: Replicas.
        kwargs: More for `compile`.
    """
    with replicas(count).scope():
        model = keras.Sequential(
            [keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
        )
        model.compile(keras.optimizers.SGD(LEARNING_RATE, **(optimizer or {})), loss, **kwargs)
    return model


def slope(model: keras.Model) -> float:
    """Returns the only weight."""
    return float(model.get_weights()[0][0, 0])


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `x` = 1, 2, 3, ... and targets of zero: row i has the gradient 2 * x[i] ** 2."""
    x = np.arange(1, count + 1, dtype="float32")[:, None]
    return x, np.zeros_like(x)


def right_slope(x: np.ndarray, weights: Any = 1.0, divisor: float | None = None) -> float:
    """Returns the slope after one right step of the mean squared error."""
    gradients = 2 * np.ravel(x) ** 2 * weights
    return float(1 - LEARNING_RATE * gradients.sum() / (divisor or len(x)))
