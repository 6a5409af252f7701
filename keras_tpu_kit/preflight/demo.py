"""The MNIST model of the tutorial, to show a preflight without any file of the user's."""

from __future__ import annotations

from typing import Any

import keras
import keras_tuner
import numpy as np

from keras_tpu_kit.factory import ModelFactory

GLOBAL_BATCH_SIZE = 1_200
_ROWS, _VALIDATION_ROWS, _PIXELS, _CLASSES = 60_000, 10_000, 784, 10


class Mnist(ModelFactory):
    """A classifier of handwritten digits, 784-128-10.

    Example:

    >>> Mnist("cpu").create().count_params()
    101770
    """

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns the model."""
        return keras.Sequential(
            [
                keras.Input((_PIXELS,)),
                keras.layers.Dense(hp.Int("units", 32, 512, default=128), activation="relu"),
                keras.layers.Dense(_CLASSES),
            ],
            name="mnist",
        )

    def compile_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        """Returns how it learns."""
        return {
            "optimizer": keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-2, default=1e-3)),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": ["accuracy"],
        }

    def data(self) -> tuple[Any, Any]:
        """Returns rows of MNIST's shape and dtype; their values are drawn, not digits."""
        draw = np.random.default_rng(0)

        def rows(count: int) -> tuple[Any, Any]:
            x = draw.random((count, _PIXELS), dtype=np.float32)
            return x, draw.integers(0, _CLASSES, count).astype("int32")

        return rows(_ROWS), rows(_VALIDATION_ROWS)
