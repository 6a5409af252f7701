"""A compute-bound network with few weights, to measure how training scales.

keras-tpu-kit scale benchmarks/small_cnn.py:SmallCnn --workers 1,2 --mode weak --rounds 5
"""

import keras
import numpy as np

import keras_tpu_kit as ktk


class SmallCnn(ktk.ModelFactory):
    """Four convolutions on 32 x 32 images: 0.1 million weights, 60 million operations a row."""

    def build(self, hp):
        layers = keras.layers
        return keras.Sequential(
            [
                keras.Input((32, 32, 3)),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )

    def compile_args(self, hp):
        return {
            "optimizer": keras.optimizers.SGD(0.01),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }

    def data(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1024, 32, 32, 3)).astype("float32")
        return (x, rng.integers(0, 10, 1024)), None
