"""What is said before `fit` is called; the faults from reports are in tests/cases."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.cases.parts import compiled, on_replicas, rows
from tests.replicas import replicas


def batched(count=40, size=8):
    return tf.data.Dataset.from_tensor_slices(rows(count)).batch(size).prefetch(1)


def code(call):
    with pytest.raises(ktk.KitError) as caught:
        call()
    return type(caught.value), caught.value.finding.code


def test_the_tutorial_s_60_000_rows_in_50_steps_pass():
    data = np.zeros((60_000, 3), "float32"), np.zeros((60_000, 1), "float32")
    monitor, steps, batch = ktk.callbacks_for(on_replicas(), data, steps_per_epoch=50)
    assert steps.steps_per_epoch == 50 and batch.samples_per_epoch == 60_000
    assert monitor.plan is None


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        (batched(), {"steps_per_epoch": 10}, (ktk.PlanError, "steps-exceed-data")),
        (batched(0), {}, (ktk.PlanError, "dataset-empty")),
        (batched().repeat(), {}, (ktk.PlanError, "steps-missing")),
        (batched().unbatch(), {}, (ktk.DataError, "dataset-not-batched")),
        (rows(40), {"steps_per_epoch": 10, "batch_size": 8}, (ktk.PlanError, "steps-not-data")),
    ],
    ids=["too-few", "empty", "endless", "unbatched", "arrays"],
)
def test_data_that_does_not_fill_the_steps_is_refused(data, arguments, expected):
    assert code(lambda: ktk.callbacks_for(compiled(), data, **arguments)) == expected


def test_what_the_fixes_say_passes():
    assert ktk.callbacks_for(compiled(), batched(), steps_per_epoch=5)
    assert ktk.callbacks_for(compiled(), batched().repeat(), steps_per_epoch=10)


def test_the_rows_of_an_epoch_are_expected_only_where_they_are_sure():
    def expected(data, **arguments):
        return ktk.callbacks_for(compiled(), data, **arguments)[2].samples_per_epoch

    assert expected(batched(37)) == 37
    assert expected(rows(37), batch_size=8) == 37
    assert expected(batched(40).repeat(), steps_per_epoch=3) == 24
    assert expected(batched(37).repeat(), steps_per_epoch=3) is None
    with pytest.warns(UserWarning, match="does not tell how many batches"):
        assert expected(batched().filter(lambda *_: True), steps_per_epoch=3) is None


def test_a_split_is_foreseen_as_fit_makes_it():
    model = compiled()
    callbacks = ktk.callbacks_for(model, rows(41), batch_size=8, validation_split=0.2)
    _, steps, batch = callbacks
    # floor(41 * 0.8) = 32 rows are trained on, in 4 batches.
    assert (steps.steps_per_epoch, batch.samples_per_epoch) == (4, 32)
    model.fit(*rows(41), batch_size=8, validation_split=0.2, verbose=0, callbacks=callbacks)
    assert int(model.optimizer.iterations) == 4
    # Data for validation comes before a split, as in Keras.
    kept = ktk.callbacks_for(
        model, rows(40), batch_size=8, validation_split=0.2, validation_data=rows(8)
    )
    assert kept[2].samples_per_epoch == 40


@pytest.mark.parametrize(
    ("data", "arguments", "expected"),
    [
        (batched(), {"validation_split": 0.2}, (ktk.DataError, "validation-split")),
        (rows(40), {"validation_split": 1.5}, (ktk.DataError, "validation-split")),
        (list(rows(40)), {"batch_size": 8}, (ktk.DataError, "targets-missing")),
        (rows(40)[0], {"batch_size": 8}, (ktk.DataError, "targets-missing")),
    ],
    ids=["dataset", "too-much", "list", "no-targets"],
)
def test_what_keras_would_stumble_over_is_named(data, arguments, expected):
    assert code(lambda: ktk.callbacks_for(compiled(), data, **arguments)) == expected


def test_stock_validation_that_a_split_cuts_unevenly_is_named():
    # Of 40 rows the last 7 are validated on, which two replicas do not divide.
    arguments = {"batch_size": 8, "validation_split": 7 / 40}
    refused = code(lambda: ktk.callbacks_for(on_replicas(), rows(40), **arguments))
    assert refused[1] in ("validation-batch-uneven", "batch-uneven")


@pytest.mark.parametrize(
    ("validation", "arguments", "expected"),
    [
        (batched().repeat(), {}, "steps-missing"),
        (batched(), {"validation_steps": 9}, "steps-exceed-data"),
        (batched().unbatch(), {}, "dataset-not-batched"),
    ],
)
def test_validation_is_looked_at_and_named(validation, arguments, expected):
    with pytest.raises(ktk.KitError) as caught:
        ktk.callbacks_for(compiled(), batched(), validation_data=validation, **arguments)
    assert caught.value.finding.code == expected
    assert "steps_per_epoch" not in str(caught.value)


def test_what_is_only_worth_knowing_is_logged(caplog):
    data = tf.data.Dataset.from_tensor_slices(rows(40)).batch(8)
    with caplog.at_level(logging.INFO, logger="keras_tpu_kit"):
        ktk.callbacks_for(compiled(), data)
    assert "prefetch" in caplog.text


def test_warn_tells_every_problem_and_returns_callbacks_that_warn():
    with pytest.warns(UserWarning) as told:
        callbacks = ktk.callbacks_for(
            on_replicas(), rows(30), batch_size=5, steps_per_epoch=7, on_problem="warn"
        )
    assert {"steps-not-data", "batch-not-divisible"} <= {
        str(each.message).rpartition("[")[2].rstrip("]") for each in told
    }
    assert [each.on_problem for each in callbacks[1:]] == ["warn", "warn"]


def test_a_plan_refuses_data_it_was_not_made_for():
    plan = ktk.plan_batches(ktk.Topology(accelerator="cpu"), num_samples=40, global_batch_size=8)
    assert code(lambda: ktk.plan_callbacks(plan, batched(40, 4))) == (
        ktk.DataError,
        "batch-not-planned",
    )
    assert code(lambda: ktk.plan_callbacks(plan, rows(48)))[1] == "rows-not-planned"
    assert ktk.plan_callbacks(plan, ktk.make_dataset(rows(40), plan, seed=1))


def test_the_callbacks_hold_values_only_and_so_can_be_copied():
    callbacks = ktk.callbacks_for(on_replicas(), rows(32), batch_size=8)
    plan = ktk.plan_batches(ktk.describe_strategy(replicas(2)), num_samples=32, global_batch_size=8)
    for each in copy.deepcopy([*callbacks, *ktk.plan_callbacks(plan)]):
        assert not any(
            isinstance(value, (tf.distribute.Strategy, tf.data.Dataset))
            for value in vars(each).values()
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": "16"},
        {"batch_size": 16, "steps_per_epoch": 2.5},
        {"batch_size": 16, "validation_batch_size": 0},
    ],
)
def test_numbers_that_are_no_counts_are_named(wrong):
    with pytest.raises(ktk.PlanError) as caught:
        ktk.callbacks_for(compiled(), rows(64), **wrong)
    assert caught.value.finding.code == "not-a-count"
    assert list(wrong)[-1] in caught.value.finding.what
