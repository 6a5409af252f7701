"""Metrics of users' own on two replicas: those that add up equal one device, others are refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.errors import ReplicationError
from keras_tpu_kit.replication import replicate
from tests.replicas import replicas

X = np.random.RandomState(0).rand(42, 5).astype("float32")
Y = np.random.RandomState(1).randint(0, 2, (42, 1)).astype("float32")


class Recalled(keras.metrics.Metric):
    """A quotient of sums, whose threshold no configuration tells."""

    def __init__(self, threshold):
        super().__init__(name="recalled")
        self.threshold = threshold
        self.found = self.add_weight(name="found", initializer="zeros")
        self.real = self.add_weight(name="real", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        found = tf.cast(y_pred > self.threshold, y_true.dtype) * y_true
        self.found.assign_add(tf.reduce_sum(found))
        self.real.assign_add(tf.reduce_sum(y_true))

    def result(self):
        return self.found / (self.real + 1e-7)


class OfBatches(keras.metrics.Mean):
    """One number for a batch, which is its mean, handed on to Keras's."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(tf.reduce_mean(tf.abs(y_true - y_pred)))


class Largest(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="largest")
        self.value = self.add_weight(name="value", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        error = tf.reduce_max(tf.abs(y_true - y_pred))
        self.value.assign(tf.maximum(self.value, error))

    def result(self):
        return self.value


class MeanOfMeans(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="mean_of_means")
        self.total = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(tf.reduce_mean(tf.abs(y_true - y_pred)))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / self.count


def per_row(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1)


def of_all_rows(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_pred))


def f1(y_true, y_pred):
    both = tf.reduce_sum(y_true * y_pred)
    return 2 * both / (tf.reduce_sum(y_true) + tf.reduce_sum(y_pred))


def model_with(*metrics, strategy=None):
    keras.utils.set_random_seed(3)
    with strategy.scope() if strategy else keras.device("cpu:0"):
        layers = [keras.Input((5,)), keras.layers.Dense(1, activation="sigmoid")]
        model = keras.Sequential(layers)
        metrics = [metric() if isinstance(metric, type) else metric for metric in metrics]
        model.compile("sgd", "mse", metrics=metrics, steps_per_execution=2)
    return replicate(model) if strategy else model


def test_those_that_add_up_are_those_of_one_device_on_uneven_batches():
    def history(strategy=None):
        with strategy.scope() if strategy else keras.device("cpu:0"):
            own = [Recalled(0.45), OfBatches("of_batches")]
        model = model_with(*own, per_row, of_all_rows, "mae", strategy=strategy)
        fitted = model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
        return fitted, model.evaluate(X[:17], Y[:17], batch_size=8, return_dict=True, verbose=0)

    (mine, mine_evaluated), (one, one_evaluated) = history(replicas(2)), history()
    assert mine.keys() == one.keys()
    for name, values in one.items():
        if name != "of_batches":  # On one device a mean over batches, here over rows.
            np.testing.assert_allclose(mine[name], values, rtol=1e-5, err_msg=name)
            np.testing.assert_allclose(mine_evaluated[name], one_evaluated[name], rtol=1e-5)


@pytest.mark.parametrize("metric", [Largest, MeanOfMeans, f1])
def test_those_that_do_not_are_refused_before_the_first_step(metric):
    model = model_with(metric, strategy=replicas(2))
    before = model.get_weights()
    with pytest.raises(ReplicationError) as caught:
        model.fit(X, Y, batch_size=8, verbose=0)
    assert caught.value.finding.code == "metric-not-sum"
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_replica_takes_any_metric():
    one = tf.distribute.OneDeviceStrategy("cpu:0")
    history = model_with(Largest, f1, strategy=one).fit(X, Y, batch_size=8, verbose=0).history
    assert 0 < history["largest"][0] < 1
    assert 0 < history["f1"][0] < 1


def test_a_metric_of_a_layer_is_asked_and_counts_nothing_meanwhile():
    class Watched(keras.layers.Layer):
        def __init__(self, metric):
            super().__init__()
            self.metric = metric

        def call(self, inputs):
            self.metric.update_state(tf.zeros_like(inputs), inputs)
            return inputs

    def model_of(kind):
        with replicas(2).scope():
            layers = [keras.Input((5,)), Watched(kind()), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            model.compile("sgd", "mse")
        return replicate(model)

    with pytest.raises(ReplicationError) as caught:
        model_of(Largest).evaluate(X, Y, verbose=0)
    assert caught.value.finding.code == "metric-not-sum"

    class Negative(Recalled):
        def __init__(self):
            super().__init__(-1.0)

        def update_state(self, y_true, y_pred):
            super().update_state(y_pred, y_pred)

    values = model_of(Negative).evaluate(X, Y, verbose=0, return_dict=True)
    np.testing.assert_allclose(values["recalled"], 1.0, rtol=1e-5)


def test_one_that_cannot_be_asked_is_told(caplog):
    class Picky(Recalled):
        def update_state(self, y_true, y_pred, sample_weight=None):
            if y_pred.shape[0] == 3:
                raise ValueError("too few rows")
            super().update_state(y_true, y_pred)

    with replicas(2).scope():
        metric = Picky(0.45)
    model_with(metric, strategy=replicas(2)).fit(X[:16], Y[:16], verbose=0)
    (message,) = [each for each in caplog.messages if "made up" in each]
    assert "ValueError: too few rows" in message
