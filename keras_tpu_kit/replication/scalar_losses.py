"""A custom loss that returns one number for a batch: is it the mean over rows?

Only then is the mean of the replicas' numbers, weighed by rows, the number of one device. A sum,
or a loss that compares rows with each other, is not, and its code does not say which it is. So it
is asked, once, with two small batches and their union.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

from keras_tpu_kit.checks.model import check_scalar_loss
from keras_tpu_kit.errors import ReplicationError, refuse

_ROWS = (3, 2)
# Where a shape is unknown, any length does.
_LENGTH = 4
_checked: weakref.WeakSet[Any] = weakref.WeakSet()


def refuse_unless_row_mean(loss: Any, y_true: Any, y_pred: Any) -> None:
    """Raises if a loss that returns a scalar does not average over rows.

    Args:
        loss: A `keras.Loss` whose `call` returned a scalar.
        y_true: What it was called with; only structure, shapes and dtypes are used.
        y_pred: Likewise.

    Raises:
        ReplicationError: If it is not the mean over rows, or cannot be asked.
    """
    if loss in _checked:
        return
    with tf.init_scope():
        is_mean = _is_row_mean(loss, y_true, y_pred)
    refuse(ReplicationError, check_scalar_loss(loss.name, is_mean))
    _checked.add(loss)


def _is_row_mean(loss: Any, y_true: Any, y_pred: Any) -> bool:
    random = np.random.RandomState(0)

    def example(part: Any) -> list[Any]:
        shape = [_LENGTH if size is None else size for size in part.shape[1:]]
        values = [random.uniform(0.1, 0.9, (rows, *shape)) for rows in _ROWS]
        dtype = tf.as_dtype(part.dtype)
        scaled = values if dtype.is_floating else [np.round(value) for value in values]
        return [tf.cast(value, dtype) for value in (*scaled, np.concatenate(scaled))]

    def nth(examples: Any, index: int) -> Any:
        return tree.map_structure_up_to(y_like, lambda parts: parts[index], examples)

    answers = []
    y_like = y_true
    truths = tree.map_structure(example, y_true)
    first, second, both = (nth(truths, index) for index in range(3))
    y_like = y_pred
    guesses = tree.map_structure(example, y_pred)
    for index, truth in enumerate((first, second, both)):
        answers.append(float(loss.call(truth, nth(guesses, index))))
    weighed = np.dot(answers[:2], _ROWS) / sum(_ROWS)
    return bool(np.isclose(weighed, answers[2], rtol=1e-3, atol=1e-6))
