"""A step of the model's own is asked before training whether it averages over its rows."""

from __future__ import annotations

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.errors import ReplicationError
from keras_tpu_kit.replication import replicate, replication_notes
from keras_tpu_kit.replication.custom_steps import ask_own_step
from keras_tpu_kit.replication.refusals import own_part
from tests.replicas import replicas
from tests.replication.parts import X, Y, gap

CLOSE = 2e-6
BATCH = (tf.TensorSpec((None, 5)), tf.TensorSpec((None, 1)))


def squares(y, p):
    return tf.reduce_mean(tf.square(y - p), axis=-1)


class Own(keras.Model):
    """Reduces the losses of its rows by `reduction`, in a step of its own."""

    reduction = staticmethod(tf.reduce_mean)

    def train_step(self, data):
        x, y, *_ = data
        with tf.GradientTape() as tape:
            loss = self.reduction(squares(y, self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


class Sums(Own):
    reduction = staticmethod(tf.reduce_sum)


class DividesTwice(Own):
    @staticmethod
    def reduction(losses):
        return tf.reduce_mean(losses) / tf.cast(tf.size(losses), losses.dtype)


class AddsASum(Own):
    @staticmethod
    def reduction(losses):
        return tf.reduce_mean(losses) + 0.1 * tf.reduce_sum(losses)


class NeedsItsRows(Own):
    @staticmethod
    def reduction(losses):
        return tf.reduce_sum(losses) / int(losses.shape[0])


class WithLossesOfKeras(keras.Model):
    """The step that guides to custom training show, on top of Keras's own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class MeanOnTop(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        own = super().compute_loss(x, y, y_pred, sample_weight, **kwargs)
        return own + 0.5 * tf.reduce_mean(tf.square(y_pred))

    def train_step(self, data):
        return super().train_step(data)


class SumOnTop(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **kwargs):
        return tf.reduce_sum(tf.square(y - y_pred))


class Penalty(keras.layers.Layer):
    def call(self, x):
        self.add_loss(tf.reduce_sum(tf.square(x)))
        return x


class PenaltyElsewhere(Penalty):
    def call(self, x):
        return self.punished(x)

    def punished(self, x):
        self.add_loss(tf.reduce_sum(tf.square(x)))
        return x


class PenaltyInGraph(Penalty):
    @tf.function
    def call(self, x):
        self.add_loss(tf.reduce_sum(tf.square(x)))
        return x


def make(kind, *middle, loss="mse", **kwargs):
    """Returns a compiled model, the same each time, in the scope that is open."""
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    for layer in middle:
        hidden = layer()(hidden)
    model = kind(inputs, keras.layers.Dense(1)(hidden))
    model.compile(keras.optimizers.SGD(0.1), loss, **kwargs)
    return model


def on_replicas(kind, *middle, count=2, **kwargs):
    with replicas(count).scope():
        return replicate(make(kind, *middle, **kwargs))


def train(model, rows=37, **kwargs):
    model.fit(X[:rows], Y[:rows], batch_size=16, epochs=2, shuffle=False, verbose=0, **kwargs)


def refused(model, run=train):
    with pytest.raises(ReplicationError) as caught:
        run(model)
    return caught.value.finding


@pytest.mark.parametrize("kind", [Sums, DividesTwice, AddsASum, SumOnTop])
def test_a_step_that_is_no_mean_over_rows_is_refused_before_it_trains(kind):
    model = on_replicas(kind)
    before = model.get_weights()
    assert refused(model).code == "own-step-not-mean"
    assert gap(before, model.get_weights()) == 0


def test_a_sum_that_a_layer_adds_is_refused():
    finding = refused(on_replicas(keras.Model, Penalty))
    assert finding.code == "own-step-not-mean"
    assert "add_loss in layer 'penalty" in finding.what


@pytest.mark.parametrize("layer", [PenaltyElsewhere, PenaltyInGraph])
def test_a_layer_that_may_add_a_loss_is_asked_wherever_it_does_so(layer):
    with replicas(2).scope():
        model = make(keras.Model)
    assert own_part(model) is None
    with replicas(2).scope():
        model = make(keras.Model, layer)
    assert own_part(model).startswith("add_loss in layer 'penalty")


def test_a_sum_is_found_under_random_masks_too():
    model = on_replicas(Sums, lambda: keras.layers.Dropout(0.5, seed=1))
    assert refused(model).code == "own-step-not-mean"


def test_a_sum_is_found_in_batches_given_whole_and_in_eager_steps():
    def on_batch(model):
        model.train_on_batch(X[:8], Y[:8])

    assert refused(on_replicas(Sums), on_batch).code == "own-step-not-mean"
    eager = on_replicas(Sums, run_eagerly=True)
    assert refused(eager, on_batch).code == "own-step-not-mean"


def test_a_sum_is_found_where_shapes_are_static():
    model = on_replicas(Sums)
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(ReplicationError):
        ask_own_step(model, BATCH, static_shapes=True)


def test_one_replica_may_sum():
    model = replicate(make(Sums))
    model.optimizer.learning_rate = 0.001
    train(model)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("kind", [Own, NeedsItsRows, WithLossesOfKeras, MeanOnTop])
def test_a_mean_trains_as_on_one_device(kind, count, caplog):
    one, many = make(kind), on_replicas(kind, count=count)
    for model in (one, many):
        train(model, rows=32)
    assert gap(one.get_weights(), many.get_weights()) < CLOSE
    assert not caplog.records


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight", None], ids=str)
def test_reductions_that_the_kit_puts_right_pass(reduction):
    def loss():
        return keras.losses.MeanSquaredError(reduction=reduction)

    assert asked(on_replicas(WithLossesOfKeras, loss=loss())) is None


def test_a_masked_loss_of_keras_passes():
    def words():
        keras.utils.set_random_seed(3)
        inputs = keras.Input((6,), dtype="int32")
        masked = keras.layers.Embedding(5, 3, mask_zero=True)(inputs)
        model = MeanOnTop(inputs, keras.layers.Dense(2)(masked))
        model.compile("sgd", "mse")
        return model

    with replicas(2).scope():
        model = words()
    batch = (tf.TensorSpec((None, 6), "int32"), tf.TensorSpec((None, 6, 2)))
    assert asked(model, batch) is None


def asked(model, batch=BATCH):
    with replicas(2).scope():
        model.optimizer.build(model.trainable_variables)
    return ask_own_step(model, batch, static_shapes=False)


def test_nothing_is_changed_by_asking():
    model = on_replicas(
        Own,
        keras.layers.BatchNormalization,
        lambda: keras.layers.Dropout(0.5, seed=1),
        metrics=["mae"],
    )
    model.steps_done = tf.Variable(3)
    train(model)
    strategy = model.distribute_strategy
    variables = [*model.variables, *model.metrics_variables, *model.optimizer.variables]

    def copies():
        return [
            copy.numpy()
            for variable in variables
            for copy in strategy.experimental_local_results(variable.value)
        ]

    assert {"seed_generator_state", "moving_mean", "iteration"} <= {each.name for each in variables}
    before = copies()
    assert ask_own_step(model, BATCH, static_shapes=False) is None
    assert ask_own_step(model, BATCH, static_shapes=True) is None
    model.run_eagerly = True
    assert ask_own_step(model, BATCH, static_shapes=False) is None
    assert gap(before, copies()) == 0


def test_random_masks_are_those_that_would_have_been_drawn_without_asking():
    def weights(kind):
        model = on_replicas(kind, lambda: keras.layers.Dropout(0.5, seed=1))
        train(model)
        return model.get_weights()

    # A step of Keras's own is not asked, and this one does the same.
    assert gap(weights(keras.Model), weights(WithLossesOfKeras)) < CLOSE


class Gan(keras.Model):
    """Two networks, each with an optimizer of its own; its data is a dict."""

    def __init__(self):
        super().__init__()
        self.critic = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
        self.maker = keras.Sequential([keras.Input((3,)), keras.layers.Dense(5)])
        self.noise = keras.random.SeedGenerator(1)
        self.mean = keras.metrics.Mean("critic")
        self.built = True

    def compile(self, reduction, **kwargs):
        super().compile(**kwargs)
        self.reduction = reduction
        self.critic_optimizer = keras.optimizers.Adam(0.01)
        self.maker_optimizer = keras.optimizers.Adam(0.01)

    def train_step(self, data):
        images = data["images"]
        noise = keras.random.normal((tf.shape(images)[0], 3), seed=self.noise)
        with tf.GradientTape() as tape:
            losses = tf.nn.softplus(-self.critic(images)) + tf.nn.softplus(
                self.critic(self.maker(noise))
            )
            loss = tf.reduce_mean(losses)
        variables = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(loss, variables), variables)
        with tf.GradientTape() as tape:
            made = self.reduction(tf.nn.softplus(-self.critic(self.maker(noise))))
        variables = self.maker.trainable_variables
        self.maker_optimizer.apply(tape.gradient(made, variables), variables)
        self.mean.update_state(loss)
        return {"critic": self.mean.result()}


@pytest.mark.parametrize("steps", [1, 2])
def test_several_optimizers_and_dicts(steps, caplog):
    def fit(reduction):
        keras.utils.set_random_seed(3)
        with replicas(2).scope():
            model = replicate(Gan())
            model.compile(reduction, steps_per_execution=steps)
        dataset = tf.data.Dataset.from_tensor_slices({"images": X}).batch(16)
        return model.fit(dataset, shuffle=False, verbose=0).history

    assert np.isfinite(fit(tf.reduce_mean)["critic"]).all()
    assert not caplog.records
    assert refused(tf.reduce_sum, fit).code == "own-step-not-mean"


class Words(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 1))
        self.built = True

    def call(self, x):
        return self.dense(tf.cast(tf.strings.length(x), "float32"))

    train_step = Own.train_step
    reduction = staticmethod(tf.reduce_mean)


class WithoutOptimizer(Own):
    def train_step(self, data):
        return {"loss": self.reduction(squares(data[1], self(data[0])))}


@pytest.mark.parametrize(
    ("kind", "reason"), [(Words, "string"), (WithoutOptimizer, "no Keras optimizer")]
)
def test_a_step_that_cannot_be_asked_trains_and_is_told_of(kind, reason, caplog):
    x = X
    with replicas(2).scope():
        if kind is Words:
            x = np.array([[b"a"], [b"bb"]] * 32)
            model = Words()
            model.compile("sgd", "mse")
        else:
            model = make(kind)
    replicate(model)
    with caplog.at_level(logging.WARNING, "keras_tpu_kit"):
        dataset = tf.data.Dataset.from_tensor_slices((x, Y)).batch(16)
        model.fit(dataset, shuffle=False, verbose=0)
    (record,) = caplog.records
    assert "[own-step-unasked]" in record.getMessage()
    assert reason in record.getMessage()
    assert "own-step-unasked" in [note.code for note in replication_notes(model)]


class Pair(keras.Model):
    """A container that trains its two models and is never called itself, as GANs are written."""

    def __init__(self):
        super().__init__()
        self.first = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(2, kernel_initializer="ones")]
        )
        self.second = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(2, kernel_initializer="ones")]
        )

    def train_step(self, data):
        x, y, *_ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(squares(y, self.first(x) * self.second(x)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def test_a_model_that_cannot_be_called_trains_as_in_stock_keras():
    weights = []
    for make in (replicate, lambda model: model):
        model = make(Pair())
        model.compile(keras.optimizers.SGD(0.01))
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
        weights.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_allclose(*weights, rtol=CLOSE)
    assert np.ptp(weights[0]) > 0
