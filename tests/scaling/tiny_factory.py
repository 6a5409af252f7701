"""A factory that `scale` can train in seconds."""

import keras
import numpy as np

import keras_tpu_kit as ktk


class Tiny(ktk.ModelFactory):
    def build(self, hp):
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])

    def compile_args(self, hp):
        return {"optimizer": "sgd", "loss": "mse"}

    def data(self):
        x = np.ones((256, 4), "float32")
        return (x, x[:, :1]), None


def no_factory(strategy):
    return strategy
