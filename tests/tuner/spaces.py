"""A small model with two hyperparameters, and rows that it can learn."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import keras_tuner
import numpy as np
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.replicas import replicas


def rows(count: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Returns `count` rows of three features, and their sum."""
    x = np.random.default_rng(0).random((count, 3), dtype="float32")
    return x, x.sum(axis=1, keepdims=True)


TRAIN, VALID = rows(64), rows(22)
CPU = tf.distribute.OneDeviceStrategy("CPU:0")


def strategy_of(count: int) -> tf.distribute.Strategy:
    """Returns a strategy over `count` replicas."""
    return CPU if count == 1 else replicas(count)


def build(hp: keras_tuner.HyperParameters) -> keras.Model:
    """Returns a compiled model, as KerasTuner's users write it."""
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(hp.Int("units", 2, 4)), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(hp.Choice("lr", [1e-2, 1e-1])), "mse", metrics=["mae"])
    return model


class Sum(ktk.ModelFactory):
    """The same as a factory."""

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(hp.Int("units", 2, 4)), keras.layers.Dense(1)]
        )

    def compile_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        optimizer = keras.optimizers.Adam(hp.Choice("lr", [1e-2, 1e-1]))
        return {"optimizer": optimizer, "loss": "mse", "metrics": ["mae"]}


class TunedBatch(Sum):
    """A factory that searches the batch as well."""

    sizes = (2, 4, 8)

    def plan_for(self, hp: keras_tuner.HyperParameters) -> ktk.BatchPlan | None:
        size = hp.Choice("per_replica_batch_size", list(self.sizes))
        return dataclasses.replace(self.plan, per_replica_batch_size=size)


def outcomes(tuner: Any) -> list[str]:
    """Returns how each trial ended, in the order in which they were begun."""
    return [each["outcome"] for each in sorted(tuner.results(), key=lambda one: one["trial_id"])]
