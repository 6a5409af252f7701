"""Statistics of layers on replicas: empty ones never touch them, and the others' meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare


@inside_step(keras.layers.BatchNormalization, "_moments")
def _moments(share: ReplicaShare, stock: Any, layer: Any, inputs: Any, mask: Any) -> Any:
    if layer.synchronized:
        share.statistics_are_global = True
    if layer.synchronized and mask is not None:
        return _masked_moments(inputs, mask, layer._reduction_axes)
    mean, variance = stock(layer, inputs, mask)
    if layer.synchronized:
        return mean, variance
    return (
        share.where_not_empty(mean, ops.cast(layer.moving_mean, mean.dtype)),
        share.where_not_empty(variance, ops.cast(layer.moving_variance, variance.dtype)),
    )


def _masked_moments(inputs: Any, mask: Any, axes: list[int]) -> tuple[Any, Any]:
    """Returns mean and variance of the unmasked elements of all replicas."""
    keep = ops.broadcast_to(ops.expand_dims(ops.cast(mask, "bool"), -1), ops.shape(inputs))
    kept = ops.where(keep, inputs, 0)
    total, squares, count = tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM,
        [
            ops.sum(kept, axes),
            ops.sum(ops.square(kept), axes),
            ops.sum(ops.cast(keep, inputs.dtype), axes),
        ],
    )
    count = count + keras.backend.epsilon()
    mean = total / count
    return mean, tf.maximum(squares / count - tf.square(mean), 0.0)


def statistics_of(model: Any, *, of_own_layers: bool = False) -> list[tf.Variable]:
    """Returns the float variables that a step may move on each replica by itself.

    TensorFlow brings those of another aggregation together at each write.

    Args:
        model: A built Keras model.
        of_own_layers: Whether to leave out what BatchNormalization guards by itself.
    """
    return [
        variable.value
        for layer in model._flatten_layers()
        if layer.trainable and not getattr(layer, "synchronized", False)
        if not getattr(layer, "stateful", False)  # A recurrent layer's states are those of rows.
        if not (of_own_layers and isinstance(layer, keras.layers.BatchNormalization))
        for variable in layer._non_trainable_variables
        if tf.as_dtype(variable.dtype).is_floating and variable.aggregation == "none"
    ]


@contextlib.contextmanager
def kept_where_empty(share: ReplicaShare, variables: list[tf.Variable]) -> Iterator[None]:
    """Gives variables their values back after the step of a replica without a row.

    A mean over no row is not a number, and a layer's moving average would stay so.

    Args:
        share: What this replica holds.
        variables: What `statistics_of` says of the user's own layers.
    """
    guarded = [] if share.is_static else variables
    before = [variable.read_value() for variable in guarded]
    yield
    for variable, value in zip(guarded, before, strict=True):
        variable.assign(share.where_not_empty(variable.read_value(), value))


def bring_together(strategy: tf.distribute.Strategy, variables: list[tf.Variable]) -> None:
    """Sets each variable to its mean over the replicas, on all of them.

    Each replica reads its own copy: given the variable itself, a strategy of several workers takes
    its copies to be equal and returns it as it is.

    Args:
        strategy: The strategy in whose scope the variables were made.
        variables: Float variables of any shape. Those of one dtype meet in one reduction.
    """
    alike: dict[Any, list[tf.Variable]] = {}
    for variable in variables:
        alike.setdefault(variable.dtype, []).append(variable)

    def average() -> None:
        context = tf.distribute.get_replica_context()
        for group in alike.values():
            own = [variable.read_value() for variable in group]
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
            for variable, mean in zip(group, means, strict=True):
                variable.assign(mean)

    if alike:
        strategy.run(average)


def synchronize_batch_normalization(model: keras.Model) -> keras.Model:
    """Makes every `BatchNormalization` of the model normalise over the global batch.

    Call it before the first step. A nested model's layers are switched, too.

    Args:
        model: Any Keras model.

    Returns:
        The same model.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    >>> synchronize_batch_normalization(model).layers[0].synchronized
    True
    """
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = True
    return model
