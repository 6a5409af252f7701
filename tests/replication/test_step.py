"""What the replicated step does beyond the matrix of equality, each against one device."""

from __future__ import annotations

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.errors import DataError, ReplicationError
from keras_tpu_kit.replication import is_replicated, progress, replicate, replication_notes
from keras_tpu_kit.replication.replicated import restore
from keras_tpu_kit.replication.share import ReplicaShare, running
from tests.replicas import replicas
from tests.replication.parts import ROWS, X, Y, gap, mlp, pair

CLOSE = 2e-6


def both_fit(models, rows=ROWS, **kwargs):
    histories = []
    for model in models:
        history = model.fit(
            X[:rows], Y[:rows], batch_size=16, epochs=2, shuffle=False, verbose=0, **kwargs
        )
        histories.append([history.history[key] for key in sorted(history.history)])
    return histories


@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight", None], ids=str)
def test_every_reduction_of_a_loss_is_that_of_one_device(reduction):
    def make():
        model = mlp(loss=keras.losses.MeanSquaredError(reduction=reduction))
        model.optimizer.learning_rate = 0.001
        model.layers[0].kernel.regularizer = None
        return model

    models = pair(make)
    weights = {} if reduction is None else {"sample_weight": np.linspace(0, 3, ROWS)}
    assert gap(*both_fit(models, **weights)) < CLOSE * 100
    assert gap(*(model.get_weights() for model in models)) < CLOSE


@pytest.mark.parametrize(
    "optimizer",
    [
        {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 2},
        {"clipvalue": 0.05, "weight_decay": 0.1},
        {"clipnorm": 0.05, "gradient_accumulation_steps": 2},
    ],
    ids=str,
)
def test_an_optimizer_acts_on_the_gradient_of_all_rows(optimizer):
    models = pair(lambda: mlp(optimizer))
    both_fit(models)
    assert gap(*(model.get_weights() for model in models)) < CLOSE


def test_a_scaled_loss_is_checked_and_clipped_after_the_sum():
    def make():
        model = mlp()
        inner = keras.optimizers.SGD(0.1, clipnorm=0.05)
        scaled = keras.optimizers.LossScaleOptimizer(inner, 16.0, dynamic_growth_steps=2)
        model.compile(scaled, "mse")
        return model

    models = pair(make)
    both_fit(models)
    assert gap(*(model.get_weights() for model in models)) < CLOSE
    assert len({float(model.optimizer.dynamic_scale.numpy()) for model in models}) == 1


def test_logs_in_an_epoch_are_those_of_one_device():
    told = []
    for model in pair(lambda: mlp(metrics=[keras.metrics.RootMeanSquaredError()])):
        seen = []
        keep = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda _, logs, seen=seen: seen.append(sorted(logs.items()))
        )
        model.fit(X[:ROWS], Y[:ROWS], batch_size=16, shuffle=False, verbose=0, callbacks=[keep])
        told.append([value for logs in seen for _, value in logs])
    assert len(told[0]) == 6
    assert gap(*told) < CLOSE


def test_an_execution_that_meets_the_end_counts_the_steps_it_ran():
    def batches():
        yield from ((X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8))

    spec = (tf.TensorSpec((None, 5)), tf.TensorSpec((None, 1)))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    one, many = pair(lambda: mlp(steps_per_execution=3))
    for model in (one, many):
        with pytest.warns(UserWarning, match="ran out of data"):
            model.fit(dataset, epochs=2, verbose=0, shuffle=False)
    assert int(many.optimizer.iterations.numpy()) == 10
    assert (progress(many).steps, progress(many).executions) == (10, 4)
    assert progress(many).input_wait > 0
    assert gap(one.get_weights(), many.get_weights()) < CLOSE


@pytest.mark.parametrize("count", [1, 2, 7])
def test_batches_given_whole_are_cut_over_the_replicas(count):
    one, many = pair()
    x, y = X[:count], Y[:count]
    assert one.train_on_batch(x, y) == pytest.approx(many.train_on_batch(x, y), rel=1e-5)
    assert one.test_on_batch(x, y) == pytest.approx(many.test_on_batch(x, y), rel=1e-5)
    assert many.predict_on_batch(x).shape == (count, 1)
    assert gap([one.predict_on_batch(x)], [many.predict_on_batch(x)]) < CLOSE
    assert (
        gap(
            [one.predict(X[: count * 5], batch_size=6, verbose=0)],
            [many.predict(X[: count * 5], batch_size=6, verbose=0)],
        )
        < CLOSE
    )


def test_replicas_draw_other_masks_the_same_for_a_seed():
    strategy = replicas(2)

    def masks():
        with strategy.scope():
            dropout = keras.layers.Dropout(0.5, seed=1)
            dropout.build((None, 64))

        def step():
            with running(ReplicaShare(1, 2)):
                return dropout(tf.ones((1, 64)), training=True)

        return [part.numpy() for part in strategy.experimental_local_results(strategy.run(step))]

    first, second = masks()
    assert not np.array_equal(first, second)
    again = masks()
    np.testing.assert_array_equal([first, second], again)


def test_replicas_agree_on_moving_statistics_also_after_an_empty_shard(tmp_path):
    with replicas(2).scope():
        model = keras.Sequential(
            [keras.Input((5,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        )
        model.compile("sgd", "mse", metrics=["mae"])
    replicate(model).fit(X[:17], Y[:17], batch_size=16, verbose=0)
    for part in (model.layers[0].moving_mean, model.layers[0].moving_variance):
        first, second = (each.numpy() for each in part.value.values)
        np.testing.assert_array_equal(first, second)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert gap(model.evaluate(X, Y, verbose=0), loaded.evaluate(X, Y, verbose=0)) < CLOSE


@pytest.mark.parametrize("count", [1, 3, 16, ROWS])
def test_rows_that_fill_up_a_static_shape_do_not_count(count):
    def make():
        return mlp(metrics=["mae"], weighted_metrics=["mse"])

    one, many = pair(make, static_shapes=True)
    kwargs = {"batch_size": 8, "sample_weight": np.linspace(1, 2, count), "verbose": 0}
    truth = one.evaluate(X[:count], Y[:count], **kwargs)
    assert gap(truth, many.evaluate(X[:count], Y[:count], **kwargs)) < CLOSE
    shapes = many.test_function  # A second evaluation is padded once, not twice.
    assert gap(truth, many.evaluate(X[:count], Y[:count], **kwargs)) < CLOSE
    assert many.test_function is shapes


def test_a_model_that_was_copied_or_saved_is_stock(tmp_path):
    _, model = pair()
    model.compile("sgd", "mse")
    assert is_replicated(model)
    model.save(tmp_path / "model.keras")
    copies = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        keras.models.clone_model(model),
        keras.models.load_model(tmp_path / "model.keras"),
    ]
    assert not any(map(is_replicated, copies))
    assert "keras_tpu_kit" not in model.to_json()
    assert not is_replicated(restore(model))


def code_of(error, run, *args, **kwargs):
    with pytest.raises(error) as caught:
        run(*args, **kwargs)
    return caught.value.finding.code


def test_data_that_replicas_cannot_share_is_refused():
    _, model = pair()
    batches = ((X[:4], Y[:4]) for _ in range(3))
    assert code_of(DataError, model.fit, batches, shuffle=False) == "generator-loses-data"
    sparse = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(X), Y)).batch(8)
    assert code_of(DataError, model.fit, sparse, shuffle=False) == "input-not-dense"


def total(y, p):
    return tf.reduce_sum(tf.square(y - p))


class Divides(keras.Sequential):
    def train_step(self, data):
        return {"loss": tf.nn.compute_average_loss(tf.ones(1))}


class Clips(keras.Sequential):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=data[1], y_pred=self(data[0]))
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 0.1)
        self.optimizer.apply(grads, self.trainable_variables)
        return {"loss": loss}


def test_models_that_no_weighting_makes_right_are_refused():
    def refused(model):
        return code_of(ReplicationError, replicate(model).fit, X, Y, verbose=0)

    outside = keras.optimizers.SGD(0.1)
    with replicas(2).scope():
        summed = mlp(loss=total)
        misplaced = mlp()
        divides, clips = (
            kind([keras.Input((5,)), keras.layers.Dense(1)]) for kind in (Divides, Clips)
        )
        misplaced.compile(outside, "mse")
        divides.compile("sgd", "mse")
        clips.compile("sgd", "mse")
        anew = mlp()
    anew.compile("adam", "mse", metrics=["mae"])  # Outside, as after unfreezing layers.
    assert refused(anew) == "variable-outside-scope"
    assert refused(summed) == "scalar-loss-not-mean"
    assert refused(misplaced) == "variable-outside-scope"
    assert refused(divides) == "step-scales-itself"
    assert refused(clips) == "step-clips-itself"


def test_static_shapes_refuse_training_batches_of_unknown_size():
    _, model = pair(static_shapes=True)
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    assert code_of(DataError, model.fit, dataset, shuffle=False) == "batch-not-static"


def test_notes_tell_what_is_mended():
    with replicas(2).scope():
        model = keras.Sequential(
            [
                keras.Input((5,)),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1, clipnorm=1.0), "mse")
    assert [note.code for note in replication_notes(model)] == [
        "clipping-after-sum",
        "own-mask-per-replica",
        "batchnorm-per-replica",
    ]


def test_a_recurrent_state_is_kept_for_each_row():
    rows = np.random.RandomState(2).rand(48, 4, 3).astype("float32")

    def trained(strategy, rows_each):
        keras.utils.set_random_seed(5)
        with strategy.scope():
            layers = [keras.Input((4, 3), batch_size=rows_each)]
            layers += [keras.layers.LSTM(3, stateful=True), keras.layers.Dense(1)]
            model = keras.Sequential(layers)
            model.compile("sgd", "mse", metrics=["mae"], steps_per_execution=3)
        replicate(model).fit(rows, Y[:48], batch_size=16, epochs=2, shuffle=False, verbose=0)
        return model

    one = trained(tf.distribute.OneDeviceStrategy("cpu:0"), 16)
    two = trained(replicas(2), 8)
    for mine, theirs in zip(two.trainable_weights, one.trainable_weights, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-6)


def test_arrays_that_batches_are_cut_from_are_not_written_to():
    def aligned(values):
        room = np.zeros(values.nbytes + 64, "uint8")
        start = -room.ctypes.data % 64
        found = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
        found[:] = values
        return found

    class Slices(keras.utils.PyDataset):
        def __init__(self, *columns):
            super().__init__()
            self.columns = columns

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return tuple(each[index * 16 : index * 16 + 16] for each in self.columns)

    x, y = aligned(X[:48]), aligned(Y[:48])
    one, two = pair()
    losses = [
        model.fit(Slices(x, y), epochs=3, shuffle=False, verbose=0).history["loss"]
        for model in (two, one)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    np.testing.assert_array_equal(x, X[:48])
    np.testing.assert_array_equal(y, Y[:48])
