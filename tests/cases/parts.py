"""Small models and data that the cases share."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

import keras_tpu_kit as ktk
from tests.replicas import replicas


def rows(count: int, width: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` rows of random features and labels, the same ones every time."""
    random = np.random.default_rng(count)
    x = random.random((count, width), dtype="float32")
    return x, (x.sum(axis=1, keepdims=True) + 1).astype("float32")


def linear(**kwargs: Any) -> keras.Sequential:
    """Returns a linear model of three features, its weights all one."""
    dense = keras.layers.Dense(1, kernel_initializer="ones", **kwargs)
    return keras.Sequential([keras.Input((3,)), dense])


def compiled(optimizer: Any = "sgd", loss: Any = "mse", **kwargs: Any) -> keras.Sequential:
    """Returns a compiled linear model, on the replicas of the scope that is open."""
    model = linear()
    model.compile(optimizer, loss, **kwargs)
    return model


def on_replicas(count: int = 2, **kwargs: Any) -> keras.Sequential:
    """Returns a stock model, rightly made in the scope of a strategy."""
    with replicas(count).scope():
        return compiled(**kwargs)


class LinearFactory(ktk.ModelFactory):
    """A factory of the same linear model; the arguments of `compile` are given to it."""

    def __init__(self, *args: Any, compile_with: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.compile_with = compile_with or (lambda: {"optimizer": "sgd", "loss": "mse"})

    def build(self, hp: Any) -> keras.Model:
        return linear()

    def compile_args(self, hp: Any) -> dict[str, Any]:
        return self.compile_with()


def weight_gap(one: keras.Model, other: keras.Model) -> float:
    """Returns the largest difference between the weights of two models."""
    pairs = zip(one.get_weights(), other.get_weights(), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)
