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
    if metric is share.loss_tracker:
        share.loss_is_tracked = True
    values = tf.convert_to_tensor(values) if not hasattr(values, "shape") else values
    if len(values.shape) == 0:
        # A custom loss has no mean on an empty replica, and 0 * nan is nan.
        values = share.where_not_empty(values, tf.zeros_like(values))
        if sample_weight is None:
            sample_weight = share.fraction(metric.dtype)
    elif metric is share.loss_tracker:
        # A loss with reduction=None: one device weighs each row's value by the batch's rows.
        sample_weight = share.total
    return stock(metric, values, sample_weight)
