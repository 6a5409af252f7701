"""Training and validation datasets over rows that can be read by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tpu_kit.datasets.gather import reader
from keras_tpu_kit.datasets.order import training_rows
from keras_tpu_kit.plan import BatchPlan

# tf.data counts elements in int64; no training gets there.
ENDLESS = np.iinfo(np.int64).max

# Batches whose row indices are computed in one go.
ORDERED_AT_ONCE = 64


def training_batches(
    data: Any, plan: BatchPlan, *, shuffle: bool, seed: int, initial_step: int
) -> tf.data.Dataset:
    """Returns this worker's part of the plan's batches, gathered by index, for ever.

    Args:
        data: A structure of columns that `gather.reader` takes.
        plan: The cut of the data.
        shuffle: Whether each epoch has another order.
        seed: Which orders.
        initial_step: The step, counted over all epochs, whose batch comes first.
    """
    readers = _readers(data)

    @_as_written
    def orders(block: tf.Tensor) -> tf.Tensor:
        elements = block * ORDERED_AT_ONCE + tf.range(ORDERED_AT_ONCE, dtype=tf.int64)
        return training_rows(elements, plan, shuffle=shuffle, seed=seed, initial_step=initial_step)

    @_as_written
    def batch(rows: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda read: read(rows), readers)

    # Computing the indices of a batch alone would cost more than gathering its rows.
    blocks = tf.data.Dataset.range(ENDLESS // ORDERED_AT_ONCE).map(orders).prefetch(1)
    return blocks.unbatch().map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def validation_batches(data: Any, plan: BatchPlan) -> tf.data.Dataset:
    """Returns the plan's validation batches in order, each row once.

    Args:
        data: A structure of columns that `gather.reader` takes.
        plan: The cut of the data.
    """
    readers = _readers(data)
    sizes = np.array(plan.validation_batches, np.int64)
    static = int(sizes[0]) if len(set(sizes.tolist())) == 1 else None

    @_as_written
    def batch(start: tf.Tensor, size: tf.Tensor) -> Any:
        rows = tf.ensure_shape(tf.range(start, start + size), [static])
        return tf.nest.map_structure(lambda read: read(rows), readers)

    return tf.data.Dataset.from_tensor_slices((np.cumsum(sizes) - sizes, sizes)).map(
        batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def as_element(data: Any) -> Any:
    """Returns arrays in the structure that a dataset's elements have.

    Lists become tuples, since tf.data would stack them; a lone list of inputs is wrapped, since
    Keras would take its second part for the targets; parts that are `None` at the end go.

    Example:

    >>> as_element([1, 2]), as_element((1, None)), as_element({"a": [1, 2]})
    (((1, 2),), (1,), {'a': (1, 2)})
    """
    if type(data) is tuple:
        while data and data[-1] is None:
            data = data[:-1]
        return _lists_as_tuples(data)
    return (_lists_as_tuples(data),) if isinstance(data, list) else _lists_as_tuples(data)


def _lists_as_tuples(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: _lists_as_tuples(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return tuple(_lists_as_tuples(value) for value in part)
    return part


def _as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that TensorFlow traces as it is.

    Rewriting Python's control flow, of which it holds none, would take half a second each time.
    """
    written: Callable[..., Any] = tf.autograph.experimental.do_not_convert(function)
    return written


def _readers(data: Any) -> Any:
    return tf.nest.map_structure(reader, as_element(data))
