"""Models and a comparison that the tests of the replicated step share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_tpu_kit.replication import replicate
from tests.replicas import replicas

ROWS = 37
X = np.random.default_rng(0).normal(size=(64, 5)).astype("float32")
Y = np.random.default_rng(1).normal(size=(64, 1)).astype("float32")


def mlp(optimizer: dict[str, Any] | None = None, loss: Any = "mse", **kwargs: Any) -> keras.Model:
    """Returns a small compiled model, the same each time, in the scope that is open."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Dense(4, activation="tanh", kernel_regularizer="l2"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.SGD(0.1, **(optimizer or {})), loss, **kwargs)
    return model


def pair(
    make: Callable[[], keras.Model] = mlp, count: int = 2, **kwargs: Any
) -> tuple[keras.Model, keras.Model]:
    """Returns the model on one device, stock, and on replicas, replicated."""
    one = make()
    with replicas(count).scope():
        many = make()
    return one, replicate(many, **kwargs)


def gap(one: Any, many: Any) -> float:
    """Returns the largest difference between two lists of numbers or arrays."""
    pairs = zip(one, many, strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)
