"""Rates against a clock and rows that are counted by hand."""

from __future__ import annotations

import copy
import csv
import itertools
import math

import keras
import numpy as np
import pytest
from keras.src.callbacks.callback_list import CallbackList

import keras_tpu_kit as ktk
from tests.cases.parts import compiled, on_replicas, rows

KEYS = {"samples_per_second", "samples_per_second_per_replica", "step_seconds"}


class Ticks:
    """A clock that is one second later at each look."""

    def __init__(self):
        self.seconds = itertools.count(1)

    def __call__(self):
        return float(next(self.seconds))


class CountsItself(keras.Sequential):
    """A model whose own train step hides how many rows there are."""

    def train_step(self, data):
        return super().train_step(data)


def fit(model, callbacks, count=40, **kwargs):
    options = {"batch_size": 8, "verbose": 0, "shuffle": False, "callbacks": callbacks} | kwargs
    return model.fit(*rows(count), **options)


def test_each_execution_is_a_tick_and_the_first_is_kept_apart():
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    fit(compiled(), [monitor], epochs=2)
    first, second = monitor.epochs
    assert first.first_execution_seconds == 1.0 and second.first_execution_seconds is None
    assert first.execution_seconds == (1.0,) * 4 and second.execution_seconds == (1.0,) * 5
    assert (first.rows, first.steps) == (32, 4) and (second.rows, second.steps) == (40, 5)
    assert monitor.throughput.samples_per_second == 8.0
    assert monitor.throughput.input_wait_share is None


def test_a_short_last_batch_counts_by_its_rows():
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    fit(compiled(), [monitor], count=37)
    assert (monitor.throughput.rows, monitor.throughput.steps) == (29, 4)


def test_validation_neither_counts_nor_resets_what_was_counted():
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    fit(compiled(), [monitor], validation_data=rows(24), epochs=2)
    assert [epoch.rows for epoch in monitor.epochs] == [32, 40]
    assert monitor.throughput.seconds == 9.0


def test_fused_steps_are_one_execution():
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    fit(compiled(steps_per_execution=5), [monitor], epochs=2)
    assert monitor.throughput.execution_seconds == (1.0,)
    assert monitor.throughput.step_seconds == 0.2
    assert math.isnan(monitor.epochs[0].samples_per_second)


def test_two_replicas_share_the_rate():
    monitor = ktk.ThroughputMonitor(one_replica_rate=5.0, clock=Ticks())
    history = fit(on_replicas(), [monitor])
    assert history.history["samples_per_second"] == [8.0]
    assert history.history["samples_per_second_per_replica"] == [4.0]
    assert history.history["scaling_efficiency"] == [0.8]


def test_a_replicated_model_tells_how_long_it_waited_for_input():
    monitor = ktk.ThroughputMonitor()
    history = fit(ktk.replicate(on_replicas()), [monitor], epochs=2)
    assert all(0 <= share <= 1 for share in history.history["input_wait_share"])
    assert monitor.throughput.rows == 72


def test_utilisation_follows_from_operations_and_peak():
    monitor = ktk.ThroughputMonitor(flops_per_step=50, peak_flops_per_replica=200, clock=Ticks())
    assert fit(compiled(), [monitor]).history["mfu"] == [0.25]


def test_rows_that_a_train_step_hides_are_unknown_unless_a_plan_tells_them():
    def model():
        hiding = CountsItself([keras.Input((3,)), keras.layers.Dense(1)])
        hiding.compile("sgd", "mse")
        return hiding

    blind = ktk.ThroughputMonitor(clock=Ticks())
    fit(model(), [blind])
    assert blind.throughput.rows is None and math.isnan(blind.throughput.samples_per_second)
    assert blind.throughput.steps == 4
    plan = ktk.plan_batches(ktk.Topology(accelerator="cpu"), num_samples=40, global_batch_size=8)
    told = ktk.ThroughputMonitor(plan, clock=Ticks())
    fit(model(), [told])
    assert told.throughput.rows == 32


def test_history_sees_the_figures_wherever_the_monitor_stands_and_later_callbacks_too(tmp_path):
    log = tmp_path / "log.csv"
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    history = fit(compiled(), [monitor, keras.callbacks.CSVLogger(log)], epochs=2)
    with log.open() as file:
        written = list(csv.DictReader(file))
    assert set(history.history) >= KEYS and set(written[0]) >= KEYS
    assert [float(row["samples_per_second"]) for row in written] == [8.0, 8.0]
    last = [keras.callbacks.CSVLogger(tmp_path / "other.csv"), ktk.ThroughputMonitor()]
    assert set(fit(compiled(), last).history) >= KEYS


@pytest.mark.parametrize(
    "kind", [ktk.ThroughputMonitor, ktk.StepsPerEpochCheck, ktk.BatchSizeCheck]
)
def test_fit_dispatches_as_it_would_without(kind, monkeypatch):
    # Keras decides by backend and version whether batch ends may go to a helper thread.
    monkeypatch.setattr("keras.src.backend.IS_THREAD_SAFE", True)
    assert CallbackList([])._async_train and CallbackList([kind()])._async_train


@pytest.mark.parametrize("helper_thread", [True, False])
def test_figures_are_the_same_from_a_helper_thread(helper_thread, monkeypatch):
    monkeypatch.setattr("keras.src.backend.IS_THREAD_SAFE", helper_thread)
    monitor, steps = ktk.ThroughputMonitor(clock=Ticks()), ktk.StepsPerEpochCheck()
    fit(compiled(), [monitor, steps], epochs=2)
    assert (monitor.throughput.rows, monitor.throughput.steps) == (72, 9)
    assert monitor.throughput.seconds == 9.0


def test_figures_are_the_same_where_another_callback_makes_keras_wait():
    class Waits(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            assert isinstance(logs["loss"], float)

    monitor = ktk.ThroughputMonitor(clock=Ticks())
    fit(compiled(), [Waits(), monitor], epochs=2)
    assert monitor.throughput.samples_per_second == 8.0


def test_a_copy_measures_for_itself_and_a_second_fit_starts_anew():
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    other = copy.deepcopy(monitor)
    fit(compiled(), [other])
    assert monitor.epochs == () and len(other.epochs) == 1
    model = compiled()
    for _ in range(2):
        fit(model, [monitor])
        assert monitor.throughput.rows == 32


def test_the_table_is_printed_where_fit_is_not_silent(capsys):
    fit(compiled(), [ktk.ThroughputMonitor(clock=Ticks())])
    assert capsys.readouterr().out == ""
    fit(compiled(), [ktk.ThroughputMonitor(clock=Ticks(), verbose=True)])
    table = capsys.readouterr().out
    assert "samples per second" in table and "unknown" in table


def test_the_picture_is_a_png_even_of_nothing(tmp_path):
    monitor = ktk.ThroughputMonitor(clock=Ticks())
    monitor.plot(tmp_path / "nothing.png")
    fit(on_replicas(), [monitor], epochs=2)
    monitor.plot(tmp_path / "two.png")
    for name in ("nothing.png", "two.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert np.isfinite(monitor.throughput.samples_per_second)
