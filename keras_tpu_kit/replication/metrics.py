"""Metrics inside a replicated step: a number for a batch counts by the replica's share.

Metrics that see rows need nothing: Keras adds numerators and denominators over replicas.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare


@inside_step(keras.metrics.Mean, "update_state")
@inside_step(keras.metrics.Sum, "update_state")
def _update(
    share: ReplicaShare, stock: Any, metric: Any, values: Any, sample_weight: Any = None
) -> Any:
    values = tf.convert_to_tensor(values) if not hasattr(values, "shape") else values
    if metric is share.loss_tracker:
        share.loss_is_tracked = True
        values = tf.reduce_mean(values)  # Of a loss with reduction=None.
        sample_weight = sample_weight if share.row_mask is None else share.rows
    if len(values.shape) == 0:
        # A mean over no row is nan, and so is 0 * nan.
        values = share.where_not_empty(values, tf.zeros_like(values))
        counts_padding = share.row_mask is not None and isinstance(sample_weight, int)
        if sample_weight is None or counts_padding:
            sample_weight = share.fraction(metric.dtype)
    return stock(metric, values, sample_weight)
