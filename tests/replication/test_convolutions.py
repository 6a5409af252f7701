"""A replica without a row goes through convolutions of every kind, in float32 on a CPU too."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import layers

from tests.replication.parts import gap, pair

CLOSE = 1e-5

ROWS = 5  # A batch of four, and one that leaves a replica of two without a row.


def network(*middle, size=(8, 8, 2)):
    def make():
        keras.utils.set_random_seed(1)
        made = keras.Sequential(
            [keras.Input(size), *(layer() for layer in middle), layers.Flatten(), layers.Dense(1)]
        )
        made.compile(keras.optimizers.SGD(0.01), "mse")
        return made

    return make


@pytest.mark.parametrize(
    "make",
    [
        network(
            lambda: layers.Conv2D(3, 3, activation="relu"),
            lambda: layers.BatchNormalization(synchronized=True),
            lambda: layers.Conv2D(4, 3, strides=2, padding="same"),
        ),
        network(lambda: layers.DepthwiseConv2D(3, depth_multiplier=2), lambda: layers.Conv2D(4, 1)),
        network(lambda: layers.SeparableConv2D(5, 3), lambda: layers.Conv2D(4, 3)),
        network(
            lambda: layers.Conv2D(3, 3, strides=2, activation="relu"),
            lambda: layers.Conv2DTranspose(2, 3, strides=2),
        ),
        network(lambda: layers.Conv1D(3, 3), lambda: layers.Conv1D(2, 3), size=(8, 2)),
        network(lambda: layers.Conv3D(3, 3), lambda: layers.Conv3D(2, 2), size=(5, 5, 5, 2)),
    ],
    ids=["conv2d and batchnorm", "depthwise", "separable", "transpose", "conv1d", "conv3d"],
)
def test_convolutions_on_an_empty_replica_equal_one_device(make):
    one, many = pair(make)
    draw = np.random.default_rng(0)
    x = draw.normal(size=(ROWS, *one.input_shape[1:])).astype("float32")
    y = draw.normal(size=(ROWS, 1)).astype("float32")
    told = [
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        for model in (one, many)
    ]
    assert gap(*told) < CLOSE
    assert gap(one.get_weights(), many.get_weights()) < CLOSE
    evaluated = [model.evaluate(x, y, batch_size=4, verbose=0) for model in (one, many)]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-4)
