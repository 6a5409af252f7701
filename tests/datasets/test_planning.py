"""Plans made from data, against counting by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError, PlanError, Topology, plan_batches
from keras_tpu_kit.datasets import make_dataset, plan_for_data

TWO = Topology(accelerator="cpu", num_replicas=2)
ROWS = tf.data.Dataset.from_tensor_slices((np.zeros((100, 3)), np.zeros(100)))
UNKNOWN = ROWS.filter(lambda x, y: True)


class Batches(keras.utils.PyDataset):
    def __init__(self, rows, size):
        super().__init__()
        self.rows, self.size = rows, size

    def __len__(self):
        return -(-self.rows // self.size)

    def __getitem__(self, index):
        return np.arange(self.rows)[index * self.size :][: self.size]


@pytest.mark.parametrize(
    "data",
    [
        np.zeros((100, 3)),
        (np.zeros((100, 3)), np.zeros(100)),
        {"a": np.zeros(100)},
        ROWS,
        ROWS.shuffle(5).map(lambda x, y: (x, y)),
        Batches(100, 30),
    ],
)
def test_rows_are_counted(data):
    plan = plan_for_data(TWO, data, global_batch_size=20, validation_data=data)
    assert plan == plan_batches(
        TWO, num_samples=100, global_batch_size=20, num_validation_samples=100
    )


@pytest.mark.parametrize("size", [{"global_batch_size": 20}, {"per_replica_batch_size": 10}])
@pytest.mark.parametrize("endless", [ROWS.repeat(), UNKNOWN.repeat()])
def test_an_epoch_of_rows_without_an_end_is_said_by_steps_and_batch(endless, size):
    plan = plan_for_data(TWO, endless, steps_per_epoch=7, **size)
    assert plan == plan_batches(TWO, num_samples=140, global_batch_size=20)
    batches = list(make_dataset(endless, plan, seed=1).take(7).as_numpy_iterator())
    assert [len(x) for x, _ in batches] == [20] * 7
    with pytest.raises(DataError, match="Pass steps_per_epoch= and global_batch_size="):
        plan_for_data(TWO, endless, **size)


@pytest.mark.parametrize(
    "size",
    [
        {"per_replica_batch_size": 10},
        {"target_batch_size": 19},
        {"steps_per_epoch": 5},
        {"global_batch_size": 20, "steps_per_execution": 5},
        {},
    ],
)
def test_sizes_are_said_as_to_plan_batches(size):
    assert plan_for_data(TWO, ROWS, **size) == plan_batches(TWO, num_samples=100, **size)


@pytest.mark.parametrize(
    "data", [ROWS.batch(20), ROWS.batch(20).prefetch(1), ROWS.batch(20, drop_remainder=True)]
)
def test_a_batched_dataset_brings_its_batch_along(data):
    plan = plan_for_data(TWO, data)
    assert (plan.global_batch_size, plan.steps_per_epoch, plan.num_samples) == (20, 5, 100)
    make_dataset(data, plan)


def test_rows_of_a_short_last_batch_are_told_as_dropped():
    plan = plan_for_data(TWO, ROWS.batch(30))
    assert (plan.num_samples, plan.steps_per_epoch, plan.dropped_samples) == (100, 3, 10)
    assert [finding.code for finding in plan.findings()] == ["rows-dropped"]


def test_a_py_dataset_is_cut_near_its_own_batch():
    assert plan_for_data(TWO, Batches(100, 30)).global_batch_size in (20, 50)
    assert plan_for_data(TWO, Batches(100, 20)).global_batch_size == 20


def test_rows_are_asked_for_where_a_dataset_hides_them():
    with pytest.raises(DataError, match="does not tell how many rows") as refusal:
        plan_for_data(TWO, UNKNOWN.batch(20))
    assert refusal.value.finding.code == "rows-unknown"
    assert "num_samples=" in refusal.value.finding.fix
    assert plan_for_data(TWO, UNKNOWN.batch(20), num_samples=100).steps_per_epoch == 5
    with pytest.raises(DataError, match="num_validation_samples="):
        plan_for_data(TWO, ROWS, validation_data=UNKNOWN)
    plan = plan_for_data(TWO, ROWS, validation_data=UNKNOWN, num_validation_samples=7)
    assert plan.num_validation_samples == 7


def test_an_endless_dataset_takes_its_epoch_from_the_steps():
    endless = ROWS.batch(20, drop_remainder=True).repeat()
    with pytest.raises(DataError, match="repeats without end"):
        plan_for_data(TWO, endless)
    assert plan_for_data(TWO, endless, steps_per_epoch=7).num_samples == 140


def test_a_batch_of_unknown_size_is_asked_for():
    open_batches = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=tf.TensorSpec((None, 3))
    )
    with pytest.raises(DataError) as refusal:
        plan_for_data(TWO, open_batches, num_samples=100)
    assert refusal.value.finding.code == "batch-unknown"
    plan = plan_for_data(TWO, open_batches, num_samples=100, global_batch_size=20)
    assert plan.steps_per_epoch == 5


@pytest.mark.parametrize(
    ("data", "given", "error", "code"),
    [
        (ROWS, {"num_samples": 99}, DataError, "rows-not-planned"),
        (ROWS.batch(20), {"global_batch_size": 40}, DataError, "batch-not-planned"),
        (ROWS.batch(20), {"per_replica_batch_size": 20}, DataError, "batch-not-planned"),
        (ROWS.batch(25), {}, PlanError, "batch-not-divisible"),
        (ROWS.batch(20), {"steps_per_epoch": 6}, PlanError, "steps-exceed-data"),
        (ROWS.batch(20), {"steps_per_epoch": 4}, PlanError, "steps-leave-data"),
        ((np.zeros(9), np.zeros(8)), {}, DataError, "lengths-differ"),
        ((row for row in ()), {}, DataError, "generator-loses-data"),
        ("rows", {}, DataError, "data-not-feedable"),
    ],
)
def test_what_contradicts_itself_is_refused(data, given, error, code):
    with pytest.raises(error) as refusal:
        plan_for_data(TWO, data, **given)
    assert refusal.value.finding.code == code
