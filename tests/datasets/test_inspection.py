"""What is said of data, against what reading it shows."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.datasets import Column, inspect_data

X, Y = np.zeros((37, 3), np.float32), np.zeros(37, np.int32)
ROWS = tf.data.Dataset.from_tensor_slices((X, Y))


def generated(spec):
    return tf.data.Dataset.from_generator(lambda: iter(()), output_signature=spec)


def same(*parts):
    return parts


def always(*parts):
    return True


DATASETS = {
    "rows": ROWS,
    "batches": ROWS.batch(8),
    "parallel batches": ROWS.batch(8, num_parallel_calls=2),
    "padded batches": ROWS.padded_batch(8),
    "whole batches": ROWS.batch(8, drop_remainder=True),
    "twice": ROWS.batch(8).repeat(2),
    "a chain": ROWS.shuffle(5).batch(8).map(same, num_parallel_calls=2).cache().prefetch(1),
    "with options": ROWS.batch(8).prefetch(1).with_options(tf.data.Options()),
    "some batches": ROWS.batch(8).take(3),
    "more than all batches": ROWS.batch(8).take(9),
    "the last batches": ROWS.batch(8).skip(2),
    "filtered batches": ROWS.batch(8).filter(always),
    "filtered rows in batches": ROWS.filter(always).batch(8),
    "taken apart again": ROWS.batch(8).unbatch(),
    "batched anew": ROWS.batch(8).rebatch(5),
    "two together": tf.data.Dataset.zip((ROWS.batch(8), ROWS.batch(8))),
    "one after the other": ROWS.batch(8).concatenate(ROWS.batch(8)),
    "from a generator": generated((tf.TensorSpec((None, 3)), tf.TensorSpec((None,)))),
    "told by hand": ROWS.filter(always).apply(tf.data.experimental.assert_cardinality(37)).batch(8),
    "interleaved": tf.data.Dataset.range(2).interleave(lambda _: ROWS.batch(8)),
    "drawn from both": tf.data.Dataset.sample_from_datasets([ROWS.batch(8), ROWS.batch(8)]),
    "ragged": tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3]] * 9)).batch(8),
}


@pytest.mark.parametrize("name", DATASETS)
def test_nothing_that_is_said_of_a_dataset_is_wrong(name):
    dataset = DATASETS[name]
    facts = inspect_data(dataset)
    is_batched = name not in ("rows", "taken apart again")
    assert facts.kind == "dataset"
    assert facts.is_batched == is_batched
    assert facts.is_prefetched == (name in ("a chain", "with options"))
    sizes = [int(tf.nest.flatten(e)[0].shape[0]) if is_batched else 1 for e in dataset]
    if facts.num_samples is not None:
        assert facts.num_samples == sum(sizes)
    if facts.num_batches is not None and facts.num_batches >= 0:
        assert facts.num_batches == len(sizes)
    if facts.batch_size is not None and sizes:
        assert facts.batch_size == max(sizes)
    if facts.last_batch_size is not None:
        assert facts.last_batch_size == min(sizes)


@pytest.mark.parametrize(
    ("name", "samples", "batches", "size", "last"),
    [
        ("rows", 37, None, None, None),
        ("batches", 37, 5, 8, 5),
        ("parallel batches", 37, 5, 8, 5),
        ("padded batches", 37, 5, 8, 5),
        ("whole batches", 32, 4, 8, 8),
        ("twice", 74, 10, 8, 5),
        ("a chain", 37, 5, 8, 5),
        ("some batches", 24, 3, 8, 8),
        ("more than all batches", 37, 5, 8, 5),
        ("filtered batches", None, -2, 8, None),
        ("filtered rows in batches", None, -2, 8, None),
        ("told by hand", 37, 5, 8, 5),
        ("taken apart again", 37, None, None, None),
        ("two together", 37, 5, 8, 5),
    ],
)
def test_what_a_dataset_lets_one_know_is_known(name, samples, batches, size, last):
    facts = inspect_data(DATASETS[name])
    assert (facts.num_samples, facts.num_batches) == (samples, batches)
    assert (facts.batch_size, facts.last_batch_size) == (size, last)


def test_a_dataset_without_end_says_so():
    facts = inspect_data(ROWS.batch(8, drop_remainder=True).repeat())
    assert (facts.num_batches, facts.num_samples, facts.last_batch_size) == (-1, None, 8)


@pytest.mark.parametrize(
    ("spec", "is_batched"),
    [
        ((tf.TensorSpec((None, 3)), tf.TensorSpec((None,))), True),
        ((tf.TensorSpec((8, 3)), tf.TensorSpec((8, 1))), True),
        ((tf.TensorSpec((28, 28)), tf.TensorSpec((28, 28))), False),
        ((tf.TensorSpec((784,)), tf.TensorSpec(())), False),
        ((tf.TensorSpec((None,)), tf.TensorSpec(())), False),
        (tf.TensorSpec((224, 224, 3)), False),
    ],
)
def test_shapes_decide_where_transformations_do_not(spec, is_batched):
    assert inspect_data(generated(spec)).is_batched == is_batched


def test_images_from_a_directory_are_batches(tmp_path):
    for index in range(6):
        (tmp_path / "ab"[index % 2]).mkdir(exist_ok=True)
        keras.utils.save_img(tmp_path / "ab"[index % 2] / f"{index}.png", np.zeros((4, 4, 3)))
    dataset = keras.utils.image_dataset_from_directory(
        tmp_path, batch_size=4, image_size=(4, 4), verbose=False
    )
    facts = inspect_data(dataset)
    assert (facts.num_samples, facts.batch_size, facts.last_batch_size) == (6, 4, 2)
    assert facts.columns[0] == Column(
        name="x", dtype="float32", kind="dense", shape=(None, 4, 4, 3)
    )


def test_a_distributed_dataset_is_described_by_what_was_distributed():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    facts = inspect_data(strategy.experimental_distribute_dataset(ROWS.batch(8)))
    assert (facts.kind, facts.num_batches, facts.batch_size) == ("distributed", 5, 8)
    from_function = strategy.distribute_datasets_from_function(lambda context: ROWS.batch(8))
    assert inspect_data(from_function).batch_size is None


def test_columns_are_named_as_users_spell_them():
    facts = inspect_data(
        (
            {"age": Y, "tags": tf.ragged.constant([[1], [2, 3]])[:1], "pair": [X, Y > 0]},
            tf.sparse.from_dense([[1.0]]),
            None,
        )
    )
    assert facts.columns == (
        Column(name="x['age']", dtype="int32", kind="dense", shape=(None,)),
        Column(name="x['tags']", dtype="int32", kind="ragged", shape=(None, None)),
        Column(name="x['pair'][0]", dtype="float32", kind="dense", shape=(None, 3)),
        Column(name="x['pair'][1]", dtype="bool", kind="dense", shape=(None,)),
        Column(name="y", dtype="float32", kind="sparse", shape=(None, 1)),
    )


@pytest.mark.parametrize(
    "text", [np.array(["a", "b"]), np.array([b"a", b"b"]), np.array(["a", "b"], object)]
)
def test_text_is_called_a_string_however_it_is_kept(text):
    assert inspect_data(text).columns[0].dtype == "string"


@pytest.mark.parametrize(
    ("batch_size", "steps", "expected"),
    [(None, None, (2, 32, 5)), (8, None, (5, 8, 5)), (None, 4, (4, 10, 7))],
)
def test_arrays_are_cut_as_keras_cuts_them(batch_size, steps, expected):
    facts = inspect_data((X, Y), batch_size=batch_size, steps_per_epoch=steps)
    assert (facts.num_batches, facts.batch_size, facts.last_batch_size) == expected
    assert (facts.kind, facts.num_samples, facts.is_batched) == ("arrays", 37, True)


def test_arrays_of_different_length_have_no_number_of_rows():
    assert inspect_data((X, Y[:5])).num_samples is None


def test_a_py_dataset_is_asked_for_one_batch_only():
    asked = []

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            asked.append(index)
            return [X[:8], Y[:8]]

    facts = inspect_data(Batches())
    assert asked == [0]
    assert (facts.kind, facts.num_batches, facts.batch_size) == ("PyDataset", 3, 8)
    assert [(column.name, column.shape) for column in facts.columns] == [
        ("x", (None, 3)),
        ("y", (None,)),
    ]


def test_a_generator_is_not_touched():
    generator = (batch for batch in [1])
    assert inspect_data(generator).kind == "generator"
    assert next(generator) == 1


@pytest.mark.parametrize("data", [None, "text", [1, 2], 5, ((), None)])
def test_what_is_no_data_is_called_by_its_type(data):
    facts = inspect_data(data)
    assert facts.kind == type(data).__name__ and facts.columns == ()
