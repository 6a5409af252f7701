"""Prediction: Keras's own function, given batches that lie on the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import tree

from keras_tpu_kit.checks.model import check_on_batch
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication import batches, preparation


def whole_batches_split(model: Any, predict: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Returns `predict` for a list of batches that may not lie on the replicas yet.

    `predict_on_batch` hands over its rows whole; every replica would answer for all of them.

    Args:
        model: A Keras model.
        predict: Keras's predict function of the model.
    """
    strategy = model.distribute_strategy

    def function(data: list[Any]) -> Any:
        preparation.build_layers(model, data[0])
        if strategy.num_replicas_in_sync > 1 and not all(map(batches.is_split, data)):
            workers = batches.num_processes(strategy)
            refuse(ReplicationError, check_on_batch("predict_on_batch", workers))
            data = [batches.split(strategy, batch) for batch in data]
        if strategy.num_replicas_in_sync == 1 or batches.in_several_processes(strategy):
            return predict(data)
        filled, real = zip(
            *(batches.fill_empty_parts(strategy, batch) for batch in data), strict=True
        )
        outputs = predict(list(filled))
        rows = [is_real for part in real for is_real in part]
        if all(rows):
            return outputs
        return tree.map_structure(lambda output: tf.boolean_mask(output, rows), outputs)

    return function
