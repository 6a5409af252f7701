"""What replicas hold by themselves becomes its mean on all of them, whatever reduction is used."""

from __future__ import annotations

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.replication import replicate
from keras_tpu_kit.replication.normalization import bring_together
from tests.replicas import replicas


def means_meet(strategy: tf.distribute.Strategy) -> None:
    """Asserts that variables of two dtypes become their means, in one graph."""
    with strategy.scope():
        variables = [
            tf.Variable(tf.zeros(shape, dtype))
            for shape, dtype in (((3,), "float32"), ((), "float64"), ((2, 2), "float32"))
        ]
    values = [
        np.random.default_rng(place).normal(size=(strategy.num_replicas_in_sync, *variable.shape))
        for place, variable in enumerate(variables)
    ]
    for variable, own in zip(variables, values, strict=True):
        for copy, value in zip(strategy.experimental_local_results(variable), own, strict=True):
            copy.assign(value)
    tf.function(lambda: bring_together(strategy, variables), autograph=False)()
    for variable, own in zip(variables, values, strict=True):
        for copy in strategy.experimental_local_results(variable):
            np.testing.assert_allclose(copy.numpy(), own.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_reduction_to_one_device(count):
    means_meet(replicas(count))


@pytest.mark.parametrize("count", [2, 4])
def test_hierarchical_copy(count):
    devices = [f"CPU:{index}" for index in range(count)]
    reduction = tf.distribute.HierarchicalCopyAllReduce()
    means_meet(tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8])
def test_tensorflows_own_reduction(count):
    # Its collectives meet those of other strategies of a process.
    code = f"""if True:
        import tensorflow as tf
        from tests.replication.test_normalization import means_meet
        means_meet(tf.distribute.MirroredStrategy([f"CPU:{{i}}" for i in range({count})]))
    """
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]


def test_nothing_to_bring_together_runs_nothing():
    bring_together(replicas(2), [])


class Counts(keras.layers.Layer):
    """Counts rows in a variable that TensorFlow sums over the replicas at each write."""

    def build(self, shape):
        options = {"trainable": False, "initializer": "zeros", "aggregation": "sum"}
        self.seen = self.add_weight(shape=(), **options)

    def call(self, x):
        # TensorFlow's own: Keras adds by assigning the sum, which each replica would add again.
        self.seen.value.assign_add(tf.cast(tf.shape(x)[0], "float32"))
        return x


def test_what_is_summed_at_each_write_is_left_alone():
    with replicas(2).scope():
        counts = Counts()
        model = keras.Sequential([keras.Input((3,)), counts, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = np.ones((16, 3), "float32")
    replicate(model).fit(rows, rows[:, :1], batch_size=4, epochs=3, verbose=0)
    assert float(counts.seen.numpy()) == 3 * 16


class MovingMean(keras.layers.Layer):
    """Follows the mean of its rows, as users write it: over no row that is not a number."""

    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(x, axis=0))
        return x - self.mean


def test_a_replica_without_a_row_leaves_a_layers_own_state_alone():
    x = np.random.default_rng(3).normal(size=(9, 5)).astype("float32")
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((5,)), MovingMean(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    replicate(model).fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0)
    mean = 0.1 * x[:4].mean(axis=0)
    mean = 0.9 * mean + 0.1 * x[4:8].mean(axis=0)
    # The last batch is one row of the first replica.
    mean = ((0.9 * mean + 0.1 * x[8]) + mean) / 2
    np.testing.assert_allclose(model.layers[0].mean.numpy(), mean, rtol=1e-4, atol=1e-6)
