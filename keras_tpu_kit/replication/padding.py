"""Evaluation where shapes must be static: short batches are filled up, and the filling masked.

A TPU compiles a program for one shape. The last batch of an evaluation is filled with copies of
its last row, and inside the step losses and metrics count the true rows only, in numerators and
denominators alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from keras import tree
from keras.src.trainers.compile_utils import MetricsList

from keras_tpu_kit.checks.model import check_padding
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare


class Padded(NamedTuple):
    """A batch of static shape, and which of its rows are true ones.

    Args:
        data: The batch, any structure.
        row_mask: Shape `(rows,)`, bool.
    """

    data: Any
    row_mask: Any


def pad(dataset: tf.data.Dataset, batch_size: int, num_replicas: int) -> tf.data.Dataset:
    """Returns the dataset with batches of one static size that divides over the replicas.

    Args:
        dataset: A batched dataset of dense tensors; its last batch may be short.
        batch_size: Rows of its other batches.
        num_replicas: Replicas in sync.

    Example:

    >>> dataset = pad(tf.data.Dataset.range(5).batch(3), batch_size=3, num_replicas=2)
    >>> [(batch.data.tolist(), batch.row_mask.tolist()) for batch in dataset.as_numpy_iterator()]
    [([0, 1, 2, 2], [True, True, True, False]), ([3, 4, 4, 4], [True, True, False, False])]
    """
    size = -(-batch_size // num_replicas) * num_replicas

    def fill(*element: Any) -> Padded:
        data = element if len(element) > 1 else element[0]
        rows = tf.shape(next(leaf for leaf in tree.flatten(data) if leaf is not None))[0]
        index = tf.minimum(tf.range(size), rows - 1)
        filled = tree.map_structure(
            lambda leaf: None if leaf is None else tf.gather(leaf, index), data
        )
        return Padded(filled, tf.range(size) < rows)

    return dataset.map(fill, num_parallel_calls=tf.data.AUTOTUNE)


def pad_evaluation(epoch_iterator: Any, strategy: tf.distribute.Strategy) -> None:
    """Makes what Keras prepared for an evaluation yield `Padded` batches, if it does not yet."""
    if isinstance(epoch_iterator._distributed_dataset.element_spec, Padded):
        return
    dataset = epoch_iterator.data_adapter.get_tf_dataset()
    rows = epoch_iterator.data_adapter.batch_size
    if rows is None:
        first = tree.flatten(next(iter(dataset.take(1))))[0]
        rows = int(tf.shape(first)[0])
    padded = pad(dataset, rows, strategy.num_replicas_in_sync)
    epoch_iterator._distributed_dataset = strategy.experimental_distribute_dataset(padded)


def refuse_own_losses(model: Any) -> None:
    """Raises if a layer adds losses of its own: they have seen the padded rows.

    Call it in the step, after the model was.
    """
    adds = [layer.name for layer in model._flatten_layers() if layer._losses]
    refuse(ReplicationError, check_padding("add_loss or activity_regularizer", adds))


@inside_step(MetricsList, "update_state")
def _update(
    share: ReplicaShare,
    stock: Any,
    metrics: Any,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any = None,
) -> Any:
    if share.row_mask is not None:
        mask = tf.cast(share.row_mask, y_pred.dtype if y_pred.dtype.is_floating else "float32")
        if sample_weight is None:
            sample_weight = mask
        else:
            shape = [-1] + [1] * (len(sample_weight.shape) - 1)
            sample_weight = sample_weight * tf.cast(tf.reshape(mask, shape), sample_weight.dtype)
    return stock(metrics, y_true, y_pred, sample_weight)
