"""Losses inside a replicated step: each replica computes what one device would on its rows.

Keras divides by the number of replicas and sums gradients, which is right for equal shards and
means over rows only. Here the loss keeps the scale of one device, `gradients` weighs it by the
replica's share, and a loss whose mean is not over rows is corrected by

    (this replica's divisor / the global divisor) * (global rows / this replica's rows).
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import ops
from keras.src.losses import loss as keras_loss

from keras_tpu_kit.checks.model import check_padding
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication import scalar_losses
from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare, sum_over_replicas


@inside_step(keras_loss, "scale_loss_for_distribution")
@inside_step(keras_loss, "unscale_loss_for_distribution")
def _keep_scale(share: ReplicaShare, stock: Any, value: Any) -> Any:
    return value


@inside_step(keras_loss.Loss, "__call__")
def _call(
    share: ReplicaShare, stock: Any, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None
) -> Any:
    share.loss_is_scalar = False
    value = stock(loss, y_true, y_pred, sample_weight)
    if share.loss_is_scalar:
        masked = [loss.name] if share.row_mask is not None else []
        refuse(ReplicationError, check_padding("The one number", masked))
        scalar_losses.refuse_unless_row_mean(loss, y_true, y_pred)
    return value


@inside_step(keras_loss, "reduce_weighted_values")
def _reduce(
    share: ReplicaShare,
    stock: Any,
    values: Any,
    sample_weight: Any = None,
    mask: Any = None,
    reduction: str | None = "sum_over_batch_size",
    dtype: Any = None,
) -> Any:
    values = ops.convert_to_tensor(values, dtype=dtype)
    if share.row_mask is not None:
        mask = _with_padding_masked(mask, share.row_mask, values)
    loss = stock(values, sample_weight, mask, reduction, dtype)
    if len(values.shape) == 0:
        share.loss_is_scalar = True
        return loss
    if reduction in (None, "none"):
        # The gradient is that of the sum, the value that is shown is the mean.
        loss = loss * share.padding(loss.dtype)
        return loss + (share.inverse(loss.dtype) - 1) * (loss - tf.stop_gradient(loss))
    loss = ops.sum(loss)  # Keras leaves the shape (0,) of no row as it is.
    if reduction == "sum":
        return loss * share.inverse(loss.dtype)
    divisor = _divisor(values, sample_weight, mask, reduction, loss.dtype)
    if divisor is None:
        return loss
    correction = tf.math.divide_no_nan(divisor, sum_over_replicas(divisor))
    return loss * correction * share.inverse(loss.dtype)


def _divisor(values: Any, sample_weight: Any, mask: Any, reduction: str, dtype: Any) -> Any:
    """Returns what Keras divides by on this replica, `None` where that is its number of rows."""
    if reduction == "mean_with_sample_weight":
        weight = keras_loss.apply_mask(sample_weight, mask, dtype=dtype, reduction=reduction)
        return None if weight is None else ops.sum(ops.cast(weight, dtype))
    return None if mask is None else ops.sum(ops.cast(mask, dtype))


def _with_padding_masked(mask: Any, row_mask: Any, values: Any) -> Any:
    shape = ops.shape(values) if mask is None else ops.shape(mask)
    rows = ops.reshape(row_mask, (-1,) + (1,) * (len(shape) - 1))
    rows = ops.broadcast_to(rows, shape)
    return rows if mask is None else ops.logical_and(ops.cast(mask, "bool"), rows)
