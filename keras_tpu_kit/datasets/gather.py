"""Reads rows of arrays by index, a whole batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.datasets.inspection import is_scipy_sparse

# Up to this many bytes an array is copied into TensorFlow, which then gathers without Python.
# Larger ones stay where they are: copying takes twice their memory for a moment, and reading
# them through NumPy costs less than a training step (measured in docs/performance.md).
COPY_LIMIT_BYTES = 2**30

Reader = Callable[[tf.Tensor], tf.Tensor]


def reader(column: Any) -> Reader:
    """Returns a function from row indices, shape `(n,)`, int64, to those rows of a column.

    Floats arrive in `keras.config.floatx()`, as they do when Keras reads arrays itself.

    Args:
        column: A NumPy array, memory-mapped or not, a tensor, a pandas object, or a SciPy
            matrix, which arrives dense.

    Example:

    >>> read = reader(np.array([[0.0], [0.5], [1.0]]))
    >>> read(tf.constant([2, 0], tf.int64)).numpy().tolist()
    [[1.0], [0.0]]
    """
    if isinstance(column, tf.RaggedTensor):
        return lambda rows: _as_floatx(tf.gather(column, rows))
    if is_scipy_sparse(column):
        return _numpy_reader(column.tocsr(), lambda matrix, rows: matrix[rows].toarray())
    if tf.is_tensor(column):
        return _tensor_reader(column)
    array = column if isinstance(column, np.ndarray) else np.asarray(column)
    if array.dtype.kind not in "OUS" and (_is_mapped(array) or array.nbytes > COPY_LIMIT_BYTES):
        return _numpy_reader(array, _in_file_order)
    return _tensor_reader(array)


def _tensor_reader(column: Any) -> Reader:
    """Returns a reader of a copy in the host's memory, which no graph holds as a constant."""
    # float64 would be cast anyway; casting here keeps half of it.
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        wide = column.dtype.itemsize > np.dtype(keras.config.floatx()).itemsize
        column = column.astype(keras.config.floatx()) if wide else column
    is_text = isinstance(column, np.ndarray) and column.dtype.kind == "O"
    dtype = tf.string if is_text else None
    with tf.device("CPU:0"):
        tensor = tf.identity(tf.convert_to_tensor(column, dtype))
    return lambda rows: _as_floatx(tf.gather(tensor, rows))


def _numpy_reader(column: Any, take: Callable[[Any, Any], Any]) -> Reader:
    """Returns a reader that leaves the column where it is."""
    dtype = tf.as_dtype(column.dtype)
    axes = column.shape[1:]

    def read(rows: tf.Tensor) -> tf.Tensor:
        values = tf.numpy_function(lambda r: take(column, r), [rows], dtype, stateful=False)
        values.set_shape([rows.shape[0], *axes])
        return _as_floatx(values)

    return read


def _in_file_order(array: Any, rows: Any) -> Any:
    """Returns `array[rows]`, read in ascending order so that a disk is not sent to and fro."""
    order = np.argsort(rows)
    taken = np.empty((len(rows), *array.shape[1:]), array.dtype)
    taken[order] = array[rows[order]]
    return taken


def _is_mapped(array: Any) -> bool:
    """Returns whether an array, or what it is a view of, lives in a file."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def _as_floatx(values: Any) -> Any:
    """Returns floats in Keras's own float type, and everything else as it is."""
    return tf.cast(values, keras.config.floatx()) if values.dtype.is_floating else values
