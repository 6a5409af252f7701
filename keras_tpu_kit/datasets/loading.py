"""Reads a stream of rows into memory once."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.checks import data as rules
from keras_tpu_kit.datasets.streams import py_dataset_batches
from keras_tpu_kit.errors import DataError, refuse

READ_AT_ONCE = 1024


def load_rows(data: Any, num_samples: int) -> Any:
    """Returns all rows of a stream as arrays of `num_samples` rows, in its structure.

    At its peak it holds the arrays and one batch.

    Args:
        data: A `tf.data.Dataset` of rows, or a `PyDataset`.
        num_samples: Rows that it holds.

    Raises:
        DataError: If it holds more or fewer.
    """
    if isinstance(data, keras.utils.PyDataset):
        one_pass = py_dataset_batches(data, shuffle=False, seed=0)
        batches = one_pass(tf.constant(0, tf.int64))
    else:
        batches = data.batch(READ_AT_ONCE)
    columns: Any = None
    filled = 0
    for batch in batches.as_numpy_iterator():
        if columns is None:
            columns = tf.nest.map_structure(
                lambda part: np.empty((num_samples, *part.shape[1:]), part.dtype), batch
            )
        parts = tf.nest.flatten(batch)
        for column, part in zip(tf.nest.flatten(columns), parts, strict=True):
            room = column[filled : filled + len(part)]
            room[...] = part[: len(room)]
        filled += len(parts[0])
        if filled > num_samples:
            break  # There may be no end.
    finding = rules.check_rows_planned(filled, num_samples)
    refuse(DataError, finding)
    return columns
