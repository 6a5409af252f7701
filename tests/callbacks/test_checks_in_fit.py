"""What an epoch really consumed, against what was planned."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from keras_tpu_kit.callbacks.consumption import rows_seen
from tests.cases.parts import compiled, on_replicas, rows


def batched(count, size=8):
    return tf.data.Dataset.from_tensor_slices(rows(count)).batch(size)


def unknown(data):
    """The same data, whose length nobody knows."""
    return data.filter(lambda *_: True)


def fit(model, data, *callbacks, **kwargs):
    return model.fit(data, shuffle=False, verbose=0, callbacks=list(callbacks), **kwargs)


def plan_of(count, batch, replicas=1):
    topology = ktk.Topology(accelerator="cpu", num_replicas=replicas)
    return ktk.plan_batches(topology, num_samples=count, global_batch_size=batch)


@pytest.mark.parametrize("count", [40, 42])
def test_rows_are_counted_exactly_before_validation_resets_them(count):
    check = ktk.BatchSizeCheck(samples_per_epoch=count)
    fit(compiled(), batched(count), check, validation_data=batched(16), epochs=2)


def test_rows_of_replicas_are_added_up():
    fit(on_replicas(), batched(42), ktk.BatchSizeCheck(samples_per_epoch=42))


def test_rows_of_several_outputs_and_weights_are_counted_once():
    x = keras.Input((3,))
    model = keras.Model(x, [keras.layers.Dense(1)(x), keras.layers.Dense(1)(x)])
    model.compile("sgd", ["mse", "mse"])
    features, labels = rows(24)
    model.fit(features, [labels, labels], batch_size=8, verbose=0)
    assert rows_seen(model) == 24


def test_other_rows_than_planned_are_an_error_and_warn_goes_on():
    with pytest.raises(ktk.DataError, match="consumed 32 rows, not the 40"):
        fit(compiled(), batched(32), ktk.BatchSizeCheck(plan_of(40, 8)))
    check = ktk.BatchSizeCheck(plan_of(40, 8), on_problem="warn")
    with pytest.warns(UserWarning, match="consumed 32 rows, not the 40"):
        fit(compiled(), batched(32), check)


def test_other_steps_than_planned_are_told_before_the_first():
    model = compiled()
    with pytest.raises(ktk.PlanError, match="about to run 4 steps an epoch, and the plan has 5"):
        fit(model, batched(32), ktk.StepsPerEpochCheck(plan_of(40, 8)))
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("steps", [5, 6, 10])
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_data_that_ends_early_is_found_though_its_length_is_unknown(steps):
    # The step that meets the end counts as an iteration, so that 4 + 1 look like 5.
    with pytest.raises(ktk.PlanError, match=f"ran 4 steps, not the {steps}"):
        fit(compiled(), unknown(batched(32)), ktk.StepsPerEpochCheck(), steps_per_epoch=steps)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_fused_steps_that_end_early_are_counted():
    model = compiled(steps_per_execution=3)
    with pytest.raises(ktk.PlanError, match="ran 4 steps, not the 6"):
        fit(model, unknown(batched(32)), ktk.StepsPerEpochCheck(), steps_per_epoch=6)


def test_replicated_steps_that_end_early_are_counted():
    model = ktk.replicate(compiled(steps_per_execution=3))
    with pytest.raises(ktk.PlanError, match="ran 4 steps, not the 6"):
        fit(model, unknown(batched(32)), ktk.StepsPerEpochCheck(), steps_per_epoch=6)


def test_epochs_of_unknown_length_are_no_problem():
    with pytest.warns(UserWarning, match="ran out of data"):
        fit(compiled(), unknown(batched(32)), ktk.StepsPerEpochCheck(), epochs=2)


def test_a_training_that_a_callback_stops_in_mid_epoch_is_no_problem():
    class Stops(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.model.stop_training = batch == 1

    plan = plan_of(40, 8)
    checks = ktk.StepsPerEpochCheck(plan), ktk.BatchSizeCheck(plan)
    history = fit(compiled(), batched(40), Stops(), *checks)
    assert len(history.history["loss"]) == 1


@pytest.mark.parametrize("kind", [ktk.StepsPerEpochCheck, ktk.BatchSizeCheck])
def test_an_unknown_wish_is_refused(kind):
    with pytest.raises(ktk.PlanError, match='on_problem="raise" or on_problem="warn"'):
        kind(on_problem="ignore")


def test_a_model_that_was_trained_before_it_was_replicated_counts_its_steps():
    model = compiled()
    fit(model, batched(32), ktk.StepsPerEpochCheck())
    fit(ktk.replicate(model), batched(32), ktk.StepsPerEpochCheck(), ktk.BatchSizeCheck())


def test_an_evaluation_in_a_callback_is_no_lost_row():
    class Evaluates(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 5:
                self.model.evaluate(x[:53], y[:53], verbose=0)

        def on_epoch_end(self, epoch, logs=None):
            self.model.evaluate(x[:53], y[:53], verbose=0)

    x, y = np.ones((200, 3), "float32"), np.ones((200, 1), "float32")
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    checks = ktk.callbacks_for(model, (x, y), batch_size=20)
    history = model.fit(x, y, batch_size=20, epochs=2, verbose=0, callbacks=[Evaluates(), *checks])
    assert len(history.epoch) == 2
