"""Batches gathered from arrays, against NumPy."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError
from keras_tpu_kit.datasets import make_dataset
from tests.datasets.plans import batches, plan_of


def test_an_epoch_holds_every_row_once_and_each_epoch_another_order():
    plan = plan_of(60, 12)
    train = make_dataset(np.arange(60), plan, seed=3)
    rows = np.reshape(batches(train, 15), (3, 60))
    assert (np.sort(rows, axis=1) == np.arange(60)).all()
    orders = {tuple(order) for order in rows.tolist()}
    assert len(orders) == 3 and tuple(range(60)) not in orders


def test_rows_left_over_are_others_each_epoch_and_none_comes_twice():
    plan = plan_of(50, 12)
    rows = np.reshape(batches(make_dataset(np.arange(50), plan, seed=3), 40), (10, 48))
    assert all(len(set(epoch)) == 48 for epoch in rows.tolist())
    assert len({tuple(np.setdiff1d(np.arange(50), epoch)) for epoch in rows}) > 5


def test_a_seed_decides_the_order_and_every_iterator_starts_anew():
    plan = plan_of(60, 12)
    first = batches(make_dataset(np.arange(60), plan, seed=3), 10)
    same = make_dataset(np.arange(60), plan, seed=3)
    np.testing.assert_array_equal(first, batches(same, 10))
    np.testing.assert_array_equal(first, batches(same, 10))
    other = batches(make_dataset(np.arange(60), plan, seed=4), 10)
    assert not np.array_equal(first, other)


def test_without_a_seed_keras_set_random_seed_decides():
    plan = plan_of(60, 12)
    keras.utils.set_random_seed(1)
    first = batches(make_dataset(np.arange(60), plan), 5)
    second = batches(make_dataset(np.arange(60), plan), 5)
    keras.utils.set_random_seed(1)
    np.testing.assert_array_equal(first, batches(make_dataset(np.arange(60), plan), 5))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("seed", [0, 1, 2, 2**31 - 1])
def test_the_order_keeps_no_trace_of_the_rows_own(seed):
    # For a random order of 10,000 rows each of these correlations is about 0.01, and a batch's
    # mean is off by about 287.
    plan = plan_of(10_000, 100)
    order = np.array(batches(make_dataset(np.arange(10_000), plan, seed=seed), 200))
    first, second = order.reshape(2, 10_000)
    assert np.abs(order.mean(axis=1) - 4999.5).max() < 5 * 287
    for one, other in (
        (first, np.arange(10_000)),
        (first, second),
        (first[1:], first[:-1]),
        (second, np.arange(10_000)),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_unshuffled_rows_come_in_order():
    plan = plan_of(20, 8)
    rows = batches(make_dataset(np.arange(20), plan, shuffle=False), 4)
    np.testing.assert_array_equal(rows, np.reshape([*range(16)] * 2, (4, 8)))


@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_the_global_batches_do_not_depend_on_the_replicas(replicas):
    one = batches(make_dataset(np.arange(64), plan_of(64, 16), seed=5), 8)
    many = batches(make_dataset(np.arange(64), plan_of(64, 16, replicas), seed=5), 8)
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize(
    ("workers", "replicas", "num_samples"), [(2, 2, 40), (2, 4, 50), (4, 4, 24)]
)
def test_workers_together_read_the_batches_of_one_device(workers, replicas, num_samples):
    one = batches(make_dataset(np.arange(num_samples), plan_of(num_samples, 8), seed=5), 8)
    local = 8 // workers
    read = []
    for worker in range(workers):
        plan = plan_of(num_samples, 8, replicas, workers, worker)
        # An element holds a worker's rows of as many steps as there are workers.
        elements = batches(make_dataset(np.arange(num_samples), plan, seed=5), 8 // workers)
        read.append(np.reshape(elements, (8, local)))
    np.testing.assert_array_equal(np.concatenate(read, axis=1), one)


def test_training_can_go_on_from_any_step():
    plan = plan_of(60, 12)
    whole = batches(make_dataset(np.arange(60), plan, seed=3), 12)
    rest = batches(make_dataset(np.arange(60), plan, seed=3, initial_step=7), 5)
    np.testing.assert_array_equal(whole[7:], rest)


def test_columns_keep_their_names_rows_and_dtypes():
    rows = 16
    data = (
        {
            "number": np.arange(rows, dtype=np.float64),
            "image": np.arange(rows * 6, dtype=np.uint8).reshape(rows, 2, 3),
            "text": np.array([f"row {i}" for i in range(rows)]),
            "object": np.array([f"row {i}" for i in range(rows)], object),
            "pair": [np.arange(rows), tf.range(rows)],
            "ragged": tf.RaggedTensor.from_row_lengths(tf.range(rows), [1] * rows),
        },
        np.arange(rows),
        np.arange(rows, dtype=np.float32),
    )
    train = make_dataset(data, plan_of(rows, 4), seed=1)
    x, y, weight = batches(train, 1)[0]
    assert x["number"].dtype == np.float32
    assert x["image"].dtype == np.uint8
    np.testing.assert_array_equal(x["number"], y)
    np.testing.assert_array_equal(x["image"], data[0]["image"][y])
    assert x["text"].tolist() == x["object"].tolist() == [f"row {i}".encode() for i in y]
    np.testing.assert_array_equal(x["pair"][0], y)
    np.testing.assert_array_equal(x["pair"][1], y)
    np.testing.assert_array_equal(x["ragged"], y[:, None])
    np.testing.assert_array_equal(weight, y)
    assert train.element_spec[0]["image"] == tf.TensorSpec((4, 2, 3), tf.uint8)


def test_a_list_of_inputs_is_not_taken_for_inputs_and_targets():
    train = make_dataset([np.arange(8), -np.arange(8)], plan_of(8, 4), seed=1)
    ((first, second),) = batches(train, 1)[0]
    np.testing.assert_array_equal(first, -second)


def test_memory_mapped_rows_are_read_from_their_file(tmp_path):
    rows = np.random.default_rng(0).random((50, 3))
    np.save(tmp_path / "x.npy", rows)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    plan = plan_of(48, 12)
    expected = batches(make_dataset(rows[2:].astype(np.float32), plan, seed=3), 8)
    train = make_dataset(mapped[2:], plan, seed=3)
    np.testing.assert_array_equal(batches(train, 8), expected)
    assert train.element_spec == tf.TensorSpec((12, 3), tf.float32)


def test_sparse_matrices_arrive_dense():
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.diag(np.arange(1.0, 9.0)).astype(np.float32)
    rows = batches(make_dataset(sparse.csc_matrix(dense), plan_of(8, 4), shuffle=False), 2)
    np.testing.assert_array_equal(np.concatenate(rows), dense)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 37, 39])
@pytest.mark.parametrize("replicas", [1, 4])
def test_validation_is_in_order_complete_and_cut_as_planned(rows, replicas):
    plan = plan_of(16, 16, replicas, validation=rows)
    valid = make_dataset(np.arange(rows), plan, training=False)
    read = list(valid.as_numpy_iterator())
    assert tuple(map(len, read)) == plan.validation_batches
    np.testing.assert_array_equal(np.concatenate(read), np.arange(rows))
    assert valid.cardinality() == plan.validation_steps


def test_the_training_form_never_ends_and_tells_keras_so():
    assert make_dataset(np.arange(8), plan_of(8, 4)).cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("data", "training", "code", "numbers"),
    [
        ((np.zeros(8), np.zeros(7)), True, "lengths-differ", ("x 8", "y 7")),
        ((np.zeros(9), np.zeros(9)), True, "rows-not-planned", ("9", "num_samples=8")),
        (np.zeros(5), False, "rows-not-planned", ("5", "num_validation_samples=4")),
        ([1, 2, 3], True, "data-not-feedable", ("list",)),
        ("file.csv", True, "data-not-feedable", ("str",)),
        ((row for row in []), True, "data-not-feedable", ("generator",)),
    ],
)
def test_what_cannot_be_fed_is_refused_with_its_numbers(data, training, code, numbers):
    with pytest.raises(DataError) as refusal:
        make_dataset(data, plan_of(8, 4, validation=4), training=training)
    assert refusal.value.finding.code == code
    assert all(number in str(refusal.value) for number in numbers)


def test_the_proposed_plan_takes_the_data():
    plan = plan_of(8, 4)
    with pytest.raises(DataError):
        make_dataset(np.arange(12), plan)
    make_dataset(np.arange(12), dataclasses.replace(plan, num_samples=12))


def test_keras_trains_on_it_as_on_the_gathered_arrays():
    x = np.random.default_rng(0).random((24, 3)).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    plan = plan_of(24, 8)

    def trained(*args, **kwargs):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(*args, verbose=0, **kwargs)
        return model.get_weights()

    train = make_dataset((x, y), plan, seed=2)
    order = np.concatenate(batches(make_dataset(np.arange(24), plan, seed=2), 6))
    expected = trained(x[order], y[order], batch_size=8, shuffle=False)
    for got, wanted in zip(trained(train, epochs=2, **plan.fit_args()), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
