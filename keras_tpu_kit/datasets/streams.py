"""Training and validation datasets over rows that come one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.checks.steps import INFINITE
from keras_tpu_kit.datasets.arrays import ENDLESS, as_element
from keras_tpu_kit.datasets.flow import cardinality
from keras_tpu_kit.datasets.order import epoch_order
from keras_tpu_kit.plan import BatchPlan

Pass = Callable[[tf.Tensor], tf.data.Dataset]


def training_batches(
    one_pass: Pass, plan: BatchPlan, *, is_endless: bool, initial_step: int
) -> tf.data.Dataset:
    """Returns this worker's part of the global batches of one pass after the other, for ever.

    Args:
        one_pass: From the epoch's number, scalar int64, to its global batches.
        plan: The cut of the data.
        is_endless: Whether one pass never ends.
        initial_step: The step, counted over all epochs, whose batch comes first.
    """
    epoch, step = divmod(initial_step, plan.steps_per_epoch)
    if is_endless:
        batches = tf.data.Dataset.range(1).flat_map(one_pass).skip(initial_step)
    else:
        epochs = tf.data.Dataset.range(epoch, ENDLESS)
        # A pass of another length would shift every later epoch; tf.data names both numbers.
        exact = tf.data.experimental.assert_cardinality(plan.steps_per_epoch)
        batches = epochs.flat_map(lambda e: one_pass(e).apply(exact)).skip(step)
    return _worker_part(batches, plan)


def shuffled_rows(
    rows: tf.data.Dataset, plan: BatchPlan, *, shuffle: bool, seed: int, buffer_size: int
) -> Pass:
    """Returns the passes over a dataset of single rows, shuffled in a buffer.

    Args:
        rows: The dataset.
        plan: The cut of the data.
        shuffle: Whether each pass has another order.
        seed: Which orders.
        buffer_size: Rows among which the next one is drawn.
    """
    if cardinality(rows) not in (INFINITE, plan.num_samples):
        rows = rows.apply(tf.data.experimental.assert_cardinality(plan.num_samples))

    def one_pass(epoch: tf.Tensor) -> tf.data.Dataset:
        order = rows
        if shuffle:
            # So that the order depends on nothing but seed and epoch: not on the iterators made
            # before, as TensorFlow's own reshuffling, nor on the global seed, which this graph
            # of a pass has of its own.
            tf.random.set_seed(1)
            mixed = tf.random.stateless_uniform(
                [], tf.stack([np.int64(seed), epoch]), 0, ENDLESS, tf.int64
            )
            order = rows.shuffle(buffer_size, seed=mixed, reshuffle_each_iteration=False)
        return order.batch(plan.global_batch_size, drop_remainder=True)

    return one_pass


def whole_batches(batches: tf.data.Dataset, plan: BatchPlan) -> Pass:
    """Returns the passes over a dataset of global batches, without the one that is short."""
    size = plan.global_batch_size
    first = tf.nest.flatten(batches.element_spec)[0]
    if first.shape[0] != size:
        batches = batches.filter(lambda *batch: tf.equal(_rows(batch), size))
        batches = mapped(batches, lambda t: tf.ensure_shape(t, [size, *t.shape[1:]]))
    return lambda epoch: batches


def py_dataset_batches(data: keras.utils.PyDataset, *, shuffle: bool, seed: int) -> Pass:
    """Returns the passes over a `PyDataset`, batch by batch as it makes them.

    Its hooks `on_epoch_begin` and `on_epoch_end` are called between the passes, and as many
    threads read from it as its `workers` say.

    Args:
        data: The `PyDataset`.
        shuffle: Whether each pass takes the batches in another order.
        seed: Which orders.
    """
    count = data.num_batches
    first_batch = as_element(_as_tuple(data[0]))
    specs = tf.nest.map_structure(_open_spec, first_batch)
    dtypes = [spec.dtype for spec in tf.nest.flatten(specs)]

    def load(index: Any) -> list[Any]:
        leaves = tf.nest.flatten(as_element(_as_tuple(data[int(index)])))
        return [
            np.asarray(leaf).astype(dtype.as_numpy_dtype)
            for leaf, dtype in zip(leaves, dtypes, strict=True)
        ]

    def batch(index: tf.Tensor) -> Any:
        leaves = tf.numpy_function(load, [index], dtypes)
        for leaf, spec in zip(leaves, tf.nest.flatten(specs), strict=True):
            leaf.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(specs, leaves)

    def turn(epoch: Any) -> Any:
        if epoch > 0:
            data.on_epoch_end()
        data.on_epoch_begin()
        return epoch

    def one_pass(epoch: tf.Tensor) -> tf.data.Dataset:
        epoch = tf.ensure_shape(tf.numpy_function(turn, [epoch], tf.int64), [])
        if count is None:
            order = tf.data.Dataset.range(ENDLESS)
        elif shuffle:
            order = tf.data.Dataset.from_tensor_slices(epoch_order(epoch, count, seed=seed))
        else:
            order = tf.data.Dataset.range(count)
        return order.map(batch, num_parallel_calls=max(1, data.workers), deterministic=True)

    return one_pass


def validation_batches(batches: tf.data.Dataset, plan: BatchPlan) -> tf.data.Dataset:
    """Returns the plan's validation batches from batches of the global size and a short last one.

    Args:
        batches: Batches of the plan's global size, but for the last.
        plan: The cut of the data.
    """
    replicas, size = plan.topology.num_replicas, plan.global_batch_size
    if plan.num_validation_samples % size % replicas == 0:
        return batches

    def split(*batch: Any) -> tf.data.Dataset:
        rows = _rows(batch)
        even = tf.where(tf.equal(rows, size), rows, rows // replicas * replicas)
        bounds = tf.stack([[0, even], [even, rows]])
        parts = tf.data.Dataset.from_tensor_slices(bounds).filter(lambda b: b[0] < b[1])
        part = batch if isinstance(batches.element_spec, tuple) else batch[0]
        return parts.map(lambda b: tf.nest.map_structure(lambda t: t[b[0] : b[1]], part))

    return batches.flat_map(split)


def mapped(batches: tf.data.Dataset, change: Callable[[tf.Tensor], tf.Tensor]) -> tf.data.Dataset:
    """Returns a dataset with `change` applied to every column; its structure stays."""
    is_tuple = isinstance(batches.element_spec, tuple)
    return batches.map(
        lambda *parts: tf.nest.map_structure(change, parts if is_tuple else parts[0])
    )


def _worker_part(batches: tf.data.Dataset, plan: BatchPlan) -> tf.data.Dataset:
    """Returns a worker's rows of each batch, in elements as `order.training_rows` has them."""
    workers, rows = plan.topology.num_workers, plan.worker_batch_size
    if workers == 1:
        return batches
    first = plan.topology.worker_index * rows
    own = mapped(batches, lambda t: t[first : first + rows])
    return mapped(
        own.batch(workers, drop_remainder=True),
        lambda t: tf.reshape(t, [workers * rows, *t.shape[2:]]),
    )


def _rows(batch: tuple[Any, ...]) -> tf.Tensor:
    return tf.shape(tf.nest.flatten(batch)[0])[0]


def _as_tuple(batch: Any) -> Any:
    return tuple(batch) if isinstance(batch, list) else batch


def _open_spec(leaf: Any) -> tf.TensorSpec:
    """Returns the spec of a batch's column; floats arrive as Keras's own float type."""
    array = np.asarray(leaf)
    dtype = tf.as_dtype(array.dtype)
    if dtype.is_floating:
        dtype = tf.as_dtype(keras.config.floatx())
    return tf.TensorSpec([None, *array.shape[1:]], dtype)
