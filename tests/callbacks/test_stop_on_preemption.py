"""A training that is stopped by SIGTERM and goes on, against one that never was."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from keras_tpu_kit.callbacks.agreement import Agreement, next_wait
from tests.callbacks.preempted import SendSignal
from tests.cases.parts import rows
from tests.replicas import replicas

EPOCHS = 3


def noisy_model(strategy=None, spx=1):
    """Returns a model with dropout, so that the random seeds matter as well."""
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else keras.device("cpu:0"):
        layers = [keras.Input((3,)), keras.layers.Dense(8), keras.layers.Dropout(0.3)]
        layers += [keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse", metrics=["mae"], steps_per_execution=spx)
    return ktk.replicate(model) if strategy else model


def train(model, stop, moment="never", initial_step=0, count=40):
    topology = ktk.describe_strategy(model.distribute_strategy)
    spx = int(model.steps_per_execution)
    plan = ktk.plan_batches(
        topology, num_samples=count, global_batch_size=4, steps_per_execution=spx
    )
    data = ktk.make_dataset(rows(count), plan, seed=5, initial_step=initial_step)
    monitor, *checks = ktk.plan_callbacks(plan)
    history = model.fit(
        data,
        validation_data=ktk.make_dataset(
            rows(12),
            ktk.plan_batches(
                topology, num_samples=40, global_batch_size=4, num_validation_samples=12
            ),
            training=False,
        ),
        epochs=EPOCHS,
        verbose=0,
        callbacks=[monitor, *checks, *([stop] if stop else []), SendSignal(moment)],
        **plan.fit_args(),
    )
    return history, monitor


def state_of(model):
    return [
        keras.ops.convert_to_tensor(v).numpy()
        for v in [*model.variables, *model.optimizer.variables]
    ]


@pytest.fixture(scope="module")
def never_stopped():
    """Weights, optimizer, seeds and history of a training that was left alone, by fused steps."""
    found = {}
    for spx in (1, 2):
        model = noisy_model(spx=spx)
        history, _ = train(model, None)
        found[spx] = state_of(model), history.history
    return found


@pytest.mark.parametrize(
    ("moment", "epoch", "step"),
    [("1:3", 1, 4), ("0:0", 0, 1), ("1:9", 1, 10), ("1:validation", 1, 10), ("1:end", 2, 0)],
)
def test_it_goes_on_at_the_same_step_and_ends_the_same(
    tmp_path, never_stopped, moment, epoch, step
):
    with pytest.raises(SystemExit) as stopped:
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), moment)
    assert stopped.value.code == 75
    stop = ktk.StopOnPreemption(tmp_path)
    assert (stop.initial_epoch, stop.initial_step) == (epoch, epoch * 10 + step)
    model = noisy_model()
    model.layers[0].kernel.assign_add(keras.ops.ones((3, 8)))  # What was saved must come back.
    history, monitor = train(model, stop)
    weights, expected = never_stopped[1]
    for mine, theirs in zip(state_of(model), weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for name in ("loss", "mae", "val_loss", "val_mae"):
        assert history.history[name] == expected[name][epoch:]
    assert sum(len(each.execution_seconds) for each in monitor.epochs) == 30 - epoch * 10 - step - 1
    assert not pathlib.Path(stop.path).exists()


def test_fused_steps_stop_between_executions(tmp_path, never_stopped):
    with pytest.raises(SystemExit):
        train(noisy_model(spx=2), ktk.StopOnPreemption(tmp_path), "1:4")
    model = noisy_model(spx=2)
    train(model, ktk.StopOnPreemption(tmp_path))
    for mine, theirs in zip(state_of(model), never_stopped[2][0], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_replicas_go_on_with_all_that_each_of_them_held(tmp_path):
    left_alone = noisy_model(replicas(2), spx=5)
    train(left_alone, None)
    with pytest.raises(SystemExit):
        train(noisy_model(replicas(2), spx=5), ktk.StopOnPreemption(tmp_path), "1:0")
    model = noisy_model(replicas(2), spx=5)
    train(model, ktk.StopOnPreemption(tmp_path))
    for mine, theirs in zip(state_of(model), state_of(left_alone), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_a_dataset_that_starts_at_the_step_itself_is_not_read_twice(tmp_path, never_stopped):
    with pytest.raises(SystemExit):
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), "1:3")
    stop = ktk.StopOnPreemption(tmp_path, skip_input=False)
    model = noisy_model()
    train(model, stop, initial_step=stop.initial_step)
    for mine, theirs in zip(state_of(model), never_stopped[1][0], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_another_model_and_another_cut_are_refused(tmp_path):
    with pytest.raises(SystemExit):
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), "1:3")
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    other.compile("adam", "mse")
    with pytest.raises(ktk.PlanError, match="saved state holds"):
        train(other, ktk.StopOnPreemption(tmp_path))
    with pytest.raises(ktk.PlanError, match="about to run 12 steps an epoch, and the plan has 10"):
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), count=48)


@pytest.mark.parametrize("place", [0, 1], ids=["backup first", "backup last"])
def test_a_backup_of_the_epoch_before_does_not_win(tmp_path, place):
    def fit(*callbacks):
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        backup = keras.callbacks.BackupAndRestore(str(tmp_path / "backup"))
        listed = [ktk.StopOnPreemption(tmp_path), *callbacks]
        listed.insert(place * len(listed), backup)
        options = {"batch_size": 4, "epochs": 4, "shuffle": False, "verbose": 0}
        model.fit(*rows(40), callbacks=listed if callbacks else [], **options)
        return model.get_weights()

    with pytest.raises(SystemExit):
        fit(SendSignal("2:3"))
    resumed, never_stopped = fit(SendSignal("never")), fit()
    for mine, theirs in zip(resumed, never_stopped, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_backup_that_is_newer_wins_and_one_far_behind_is_refused(tmp_path):
    class BeginsAt(keras.callbacks.Callback):
        def __init__(self, epoch):
            super().__init__()
            self.epoch = epoch

        def on_train_begin(self, logs=None):
            self.model._initial_epoch = self.epoch  # As BackupAndRestore does.

    with pytest.raises(SystemExit):
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), "1:3")
    data, options = rows(40), {"batch_size": 4, "epochs": 3, "shuffle": False, "verbose": 0}
    stop = ktk.StopOnPreemption(tmp_path)
    with pytest.raises(ktk.PlanError) as caught:
        noisy_model().fit(*data, callbacks=[stop, BeginsAt(0)], **options)
    assert caught.value.finding.code == "backup-behind"
    for listed in ([BeginsAt(2), stop], [stop, BeginsAt(2)]):
        with pytest.raises(SystemExit):
            train(noisy_model(), ktk.StopOnPreemption(tmp_path), "1:3")
        history = noisy_model().fit(*data, callbacks=listed, **options)
        assert history.epoch == [2]
        assert not pathlib.Path(stop.path).exists()


def test_a_signal_behind_the_last_step_stops_and_the_next_run_trains_no_more(tmp_path):
    with pytest.raises(SystemExit):
        train(noisy_model(), ktk.StopOnPreemption(tmp_path), f"{EPOCHS - 1}:end")
    model = noisy_model()
    history, _ = train(model, ktk.StopOnPreemption(tmp_path))
    assert history.epoch == []
    untouched = noisy_model()
    train(untouched, None)
    for mine, theirs in zip(model.get_weights(), untouched.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not pathlib.Path(ktk.StopOnPreemption(tmp_path).path).exists()


class TwoOptimizers(keras.Sequential):
    """Its own step updates each layer by another optimizer, neither the one Keras knows."""

    def compile(self, builds, **kwargs):
        super().compile(**kwargs)
        self.first, self.rest = keras.optimizers.Adam(0.1), [keras.optimizers.Adam(0.01)]
        if builds:
            self.first.build(self.layers[0].trainable_variables)
            self.rest[0].build(self.layers[1].trainable_variables)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        for layer, optimizer in zip(self.layers, [self.first, *self.rest], strict=True):
            weights = layer.trainable_weights
            optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def test_every_optimizer_that_a_model_holds_is_saved(tmp_path):
    def fit(*callbacks, builds=True):
        keras.utils.set_random_seed(7)
        layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)]
        model = TwoOptimizers(layers)
        model.compile(builds=builds, loss="mse")
        model.fit(
            *rows(40), batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=list(callbacks)
        )
        return model

    with pytest.raises(ktk.PlanError) as caught:
        fit(ktk.StopOnPreemption(tmp_path), builds=False)
    assert caught.value.finding.code == "optimizer-not-built"
    with pytest.raises(SystemExit):
        fit(ktk.StopOnPreemption(tmp_path), SendSignal("1:3"))
    resumed, never_stopped = fit(ktk.StopOnPreemption(tmp_path)), fit()
    for mine, theirs in zip(resumed.get_weights(), never_stopped.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in (
        (resumed.first, never_stopped.first),
        (resumed.rest[0], never_stopped.rest[0]),
    ):
        assert int(mine.iterations) == int(theirs.iterations) == 30


def test_the_signal_goes_to_its_earlier_handler_again_after_training(tmp_path):
    heard = []
    earlier = signal.signal(signal.SIGTERM, lambda *_: heard.append("script"))
    try:
        train(noisy_model(), ktk.StopOnPreemption(tmp_path))
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["script"]

        class Fails(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                raise ZeroDivisionError

        model = noisy_model()
        with pytest.raises(ZeroDivisionError):
            model.fit(*rows(8), verbose=0, callbacks=[ktk.StopOnPreemption(tmp_path), Fails()])

        class SendsOnce(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                os.kill(os.getpid(), signal.SIGTERM)

        # In a later fit of the same model, which listens for nothing.
        model.fit(*rows(8), verbose=0, callbacks=[SendsOnce()])
        assert heard == ["script", "script"]
    finally:
        signal.signal(signal.SIGTERM, earlier)


def test_a_thread_that_hears_no_signal_is_refused(tmp_path):
    caught = []

    def run():
        try:
            train(noisy_model(), ktk.StopOnPreemption(tmp_path))
        except ktk.KitError as error:
            caught.append(error.finding.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == ["preemption-in-thread"]


def test_workers_ask_each_other_about_once_a_second():
    assert next_wait(0.001, calls=1) == 1000
    assert next_wait(30.0, calls=1) == 1
    assert next_wait(0.0, calls=1) == 100_000


def test_one_worker_asks_nobody_and_several_stop_together():
    alone = Agreement(None, 1)
    assert alone.stops(True) and not alone.stops(False)
    # Replicas of one process stand in for workers: the sum is the same.
    seconds = iter([0.0, 0.25, 0.5, 1.5])
    several = Agreement(replicas(2), 2, clock=lambda: next(seconds))
    answers = [several.stops(asked) for asked in (False, True, True, True, True, True)]
    assert answers == [False, False, False, False, True, False]


@pytest.mark.slow
def test_the_process_exits_with_code_75(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "tests.callbacks.preempted", str(tmp_path), "0:2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 75, run.stderr
    assert "Stopped at epoch 0, step 3" in run.stderr
