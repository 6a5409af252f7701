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

from keras_tpu_kit.checks.model import check_scalar_loss
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication.examples import ROWS, two_batches_and_both

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
    answers = [float(loss.call(*batch)) for batch in two_batches_and_both((y_true, y_pred))]
    weighed = np.dot(answers[:2], ROWS) / sum(ROWS)
    return bool(np.isclose(weighed, answers[2], rtol=1e-3, atol=1e-6))
