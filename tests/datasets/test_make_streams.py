"""Batches from datasets and PyDatasets, against NumPy."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError
from keras_tpu_kit.datasets import inspect_data, make_dataset
from tests.datasets.plans import batches, plan_of


class Pairs(keras.utils.PyDataset):
    """Rows `(i, -i)` in batches, the last one short, that notes when its epochs turn."""

    def __init__(self, rows, batch, **kwargs):
        super().__init__(**kwargs)
        self.rows, self.batch, self.turns = rows, batch, []

    def __len__(self):
        return -(-self.rows // self.batch)

    def __getitem__(self, index):
        rows = np.arange(index * self.batch, min(self.rows, (index + 1) * self.batch))
        return rows.astype(np.float64), -rows

    def on_epoch_begin(self):
        self.turns.append("begin")

    def on_epoch_end(self):
        self.turns.append("end")


def rows(count, kind):
    """A dataset of the rows 0 to count, which tells its length or does not."""
    dataset = tf.data.Dataset.range(count)
    return dataset if kind == "known" else dataset.filter(lambda row: True)


@pytest.mark.parametrize("kind", ["known", "unknown"])
@pytest.mark.parametrize("cache", [False, True])
def test_rows_of_a_dataset_come_once_an_epoch_in_another_order_each(kind, cache):
    plan = plan_of(60, 12)
    train = make_dataset(rows(60, kind), plan, seed=3, cache=cache)
    epochs = np.reshape(batches(train, 15), (3, 60))
    assert (np.sort(epochs, axis=1) == np.arange(60)).all()
    assert len({tuple(order) for order in epochs.tolist()}) == 3
    np.testing.assert_array_equal(np.reshape(batches(train, 15), (3, 60)), epochs)
    again = make_dataset(rows(60, kind), plan, seed=3, cache=cache)
    np.testing.assert_array_equal(np.reshape(batches(again, 15), (3, 60)), epochs)


def test_a_cached_dataset_is_gathered_like_arrays():
    plan = plan_of(60, 12)
    cached = make_dataset(rows(60, "known"), plan, seed=3, cache=True)
    arrays = make_dataset(np.arange(60), plan, seed=3)
    np.testing.assert_array_equal(batches(cached, 10), batches(arrays, 10))


def test_a_cached_dataset_is_read_once():
    reads = []

    def note(row):
        reads.append(int(row))
        return row

    dataset = rows(12, "known").map(
        lambda row: tf.ensure_shape(tf.numpy_function(note, [row], tf.int64), [])
    )
    batches(make_dataset(dataset, plan_of(12, 4), seed=3, cache=True), 9)
    assert sorted(reads) == list(range(12))


def test_a_cache_in_files_stays_there(tmp_path):
    train = make_dataset(rows(12, "known"), plan_of(12, 4), seed=3, cache=str(tmp_path / "rows"))
    assert sorted(np.concatenate(batches(train, 3)).tolist()) == list(range(12))
    assert list(tmp_path.glob("rows*"))


def test_a_small_buffer_shuffles_near_by():
    plan = plan_of(1000, 100)
    train = make_dataset(rows(1000, "known"), plan, seed=3, shuffle_buffer=10)
    order = np.concatenate(batches(train, 10))
    assert sorted(order.tolist()) == list(range(1000))
    # A row may wait in the buffer, but none comes more than its size too early.
    assert (order - np.arange(1000)).max() <= 10


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_the_global_batches_do_not_depend_on_the_replicas(cache, replicas):
    one = batches(make_dataset(rows(64, "known"), plan_of(64, 16), seed=5, cache=cache), 8)
    plan = plan_of(64, 16, replicas)
    many = batches(make_dataset(rows(64, "known"), plan, seed=5, cache=cache), 8)
    np.testing.assert_array_equal(one, many)


def source(kind):
    data = np.arange(40)
    return {
        "rows": tf.data.Dataset.from_tensor_slices((data.astype(np.float32), -data)),
        "batches": tf.data.Dataset.from_tensor_slices((data.astype(np.float32), -data)).batch(8),
        "PyDataset": Pairs(40, 8),
    }[kind]


@pytest.mark.parametrize("kind", ["rows", "batches", "PyDataset"])
def test_workers_together_read_the_batches_of_one_device(kind):
    one = [x for x, _ in batches(make_dataset(source(kind), plan_of(40, 8), seed=5), 8)]
    read = []
    for worker in range(2):
        train = make_dataset(source(kind), plan_of(40, 8, 4, 2, worker), seed=5)
        elements = batches(train, 4)
        assert all(x.shape == (8,) and (y == -x).all() for x, y in elements)
        read.append(np.reshape([x for x, _ in elements], (8, 4)))
    np.testing.assert_array_equal(np.concatenate(read, axis=1), one)


@pytest.mark.parametrize("kind", ["rows", "batches", "PyDataset"])
def test_training_can_go_on_from_any_step(kind):
    plan = plan_of(40, 8)
    whole = batches(make_dataset(source(kind), plan, seed=3), 14)
    rest = batches(make_dataset(source(kind), plan, seed=3, initial_step=7), 7)
    np.testing.assert_array_equal(whole[7:], rest)


def test_a_dataset_that_repeats_is_taken_as_it_comes():
    plan = plan_of(12, 4)
    train = make_dataset(rows(12, "known").repeat(), plan, shuffle=False)
    np.testing.assert_array_equal(np.concatenate(batches(train, 4)), [*range(12), *range(4)])


@pytest.mark.parametrize("held", [11, 13])
def test_a_dataset_of_another_length_than_planned_is_refused(held):
    plan = plan_of(12, 4)
    with pytest.raises(DataError, match=f"{held} rows.*num_samples=12"):
        make_dataset(rows(held, "known"), plan)
    with pytest.raises(DataError, match=r"rows.*num_samples=12"):
        make_dataset(rows(held, "unknown"), plan, cache=True)


@pytest.mark.parametrize("held", [11, 13])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_dataset_that_turns_out_of_another_length_stops_training(held, shuffle):
    train = make_dataset(rows(held, "unknown"), plan_of(12, 4), shuffle=shuffle)
    with pytest.raises(tf.errors.FailedPreconditionError, match="12 elements"):
        batches(train, 4)


@pytest.mark.parametrize("held", [15, 25])
def test_batches_that_turn_out_more_or_fewer_stop_training(held):
    plan = plan_of(20, 5)
    for data in (Pairs(held, 5), rows(held, "unknown").batch(5)):
        with pytest.raises(tf.errors.FailedPreconditionError, match="4 elements"):
            batches(make_dataset(data, plan), 5)


def test_the_order_does_not_depend_on_the_global_seed():
    plan = plan_of(60, 12)
    orders = []
    for global_seed in (0, 1):
        keras.utils.set_random_seed(global_seed)
        orders.append(batches(make_dataset(rows(60, "known"), plan, seed=3), 10))
    np.testing.assert_array_equal(*orders)


def test_batches_are_taken_as_they_are_and_the_short_one_is_left_out():
    dataset = rows(22, "known").batch(8)
    train = make_dataset(dataset, plan_of(22, 8))
    np.testing.assert_array_equal(batches(train, 3), [np.arange(8), np.arange(8, 16), np.arange(8)])
    assert train.element_spec == tf.TensorSpec((8,), tf.int64)


def test_batches_of_another_size_than_planned_are_refused():
    with pytest.raises(DataError, match=r"batches of 8 rows.*global_batch_size=4"):
        make_dataset(rows(16, "known").batch(8), plan_of(16, 4))


@pytest.mark.parametrize("batch", [5, 8, 12])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_py_dataset_gives_its_rows_in_batches_of_the_plan(batch, workers):
    data = Pairs(40, batch, workers=workers)
    train = make_dataset(data, plan_of(40, 8), seed=3)
    read = batches(train, 10)
    assert all((y == -x).all() and x.dtype == np.float32 for x, y in read)
    epochs = np.reshape([x for x, _ in read], (2, 40))
    assert (np.sort(epochs, axis=1) == np.arange(40)).all()
    assert data.turns[:3] == ["begin", "end", "begin"]


def test_an_unshuffled_py_dataset_keeps_its_order():
    train = make_dataset(Pairs(40, 8), plan_of(40, 8), shuffle=False)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in batches(train, 5)]), range(40))


def test_a_cached_py_dataset_is_shuffled_row_by_row():
    train = make_dataset(Pairs(40, 8), plan_of(40, 8), seed=3, cache=True)
    x = np.array([x for x, _ in batches(train, 5)])
    assert sorted(x.ravel().tolist()) == list(range(40))
    assert len({int(row) // 8 for row in x[0]}) > 1


@pytest.mark.parametrize("rows_", [1, 3, 7, 16, 37])
@pytest.mark.parametrize("replicas", [1, 4])
@pytest.mark.parametrize("kind", ["rows", "batches", "PyDataset"])
def test_validation_is_in_order_complete_and_cut_as_planned(rows_, replicas, kind):
    data = {
        "rows": lambda: rows(rows_, "known"),
        "batches": lambda: rows(rows_, "known").batch(5),
        "PyDataset": lambda: Pairs(rows_, 5),
    }[kind]()
    plan = plan_of(16, 16, replicas, validation=rows_)
    valid = make_dataset(data, plan, training=False)
    read = [b[0] if isinstance(b, tuple) else b for b in valid.as_numpy_iterator()]
    assert tuple(map(len, read)) == plan.validation_batches
    np.testing.assert_array_equal(np.concatenate(read), np.arange(rows_))


def test_an_element_of_one_part_stays_one():
    dataset = tf.data.Dataset.from_tensor_slices(((np.arange(7), -np.arange(7)),))
    dataset = dataset.map(lambda *pair: (pair,))
    plan = plan_of(7, 4, 2, validation=7)
    for each in (
        make_dataset(dataset.batch(4), plan),
        make_dataset(dataset, plan, training=False),
        make_dataset(dataset, plan_of(7, 4, 2, 2, 1)),
    ):
        assert isinstance(each.element_spec, tuple) and len(each.element_spec) == 1


def test_what_is_made_is_described_as_what_it_is():
    plan = plan_of(40, 8, 4, validation=18)
    train = inspect_data(make_dataset(np.arange(40), plan))
    assert (train.num_batches, train.batch_size, train.last_batch_size) == (-1, 8, 8)
    assert train.is_batched and train.is_prefetched
    valid = inspect_data(make_dataset(np.arange(18), plan, training=False))
    assert (valid.num_batches, valid.num_samples) == (3, 18)
    assert (valid.batch_size, valid.last_batch_size) == (8, 2)
