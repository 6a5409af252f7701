"""Optimizers inside a replicated step: gradients meet first, all else sees the global gradient.

Keras sums gradients in the last moment, after clipping, accumulation and the check for
non-finite numbers, so each of these acts on a part of the gradient. Here `apply` brings the
replicas together at once, and the later sum leaves it alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras.optimizers import LossScaleOptimizer
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer

from keras_tpu_kit.checks.model import check_scaled_loss
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare, current_share, running


@inside_step(BaseOptimizer, "scale_loss")
@inside_step(LossScaleOptimizer, "scale_loss")
def _scale_loss(share: ReplicaShare, stock: Any, optimizer: Any, loss: Any) -> Any:
    share.scaled_optimizers.add(id(optimizer))
    return share.weigh(tf.convert_to_tensor(stock(optimizer, loss)))


@inside_step(BaseOptimizer, "apply")
@inside_step(LossScaleOptimizer, "apply")
def _apply(
    share: ReplicaShare,
    stock: Any,
    optimizer: Any,
    grads: Sequence[Any],
    trainable_variables: Any = None,
) -> Any:
    if share.gradients_are_global:
        return stock(optimizer, grads, trainable_variables)
    grads = list(grads)
    if id(optimizer) not in share.scaled_optimizers:
        if share.statistics_are_global and not share.is_static and share.captured is None:
            refuse(ReplicationError, check_scaled_loss(False, share.is_static))
        grads = [None if g is None else _times(g, share) for g in grads]
    if share.captured is not None:
        share.captured.append([grad for grad in grads if grad is not None])
        return None
    with _gradients_global(share):
        return stock(optimizer, _sum(grads, share), trainable_variables)


@inside_step(TFOptimizer, "_all_reduce_sum_gradients")
def _all_reduce(share: ReplicaShare, stock: Any, optimizer: Any, grads_and_vars: Any) -> Any:
    return list(grads_and_vars) if share.gradients_are_global else stock(optimizer, grads_and_vars)


@inside_step(LossScaleOptimizer, "_tf_apply")
def _apply_scaled(
    share: ReplicaShare, stock: Any, optimizer: Any, grads: Any, trainable_variables: Any = None
) -> Any:
    if _replicas_need_no_meeting():
        return stock(optimizer, grads, trainable_variables)
    finite = optimizer.check_finite(grads)
    return _branch(
        finite,
        lambda grads: optimizer._stateful_handle_finite_grads(grads, trainable_variables),
        lambda grads: optimizer._stateful_handle_non_finite_grads(),
        list(grads),
    )


@inside_step(BaseOptimizer, "_backend_apply_gradients")
def _apply_under_conditions(
    share: ReplicaShare, stock: Any, optimizer: Any, grads: Any, trainable_variables: Any
) -> Any:
    steps = optimizer.gradient_accumulation_steps
    overwrites = optimizer.use_ema and optimizer.ema_overwrite_frequency
    if _replicas_need_no_meeting() or not (steps or overwrites):
        return stock(optimizer, grads, trainable_variables)

    def update(grads: Any) -> None:
        grads = optimizer._clip_gradients(grads)
        optimizer._apply_weight_decay(trainable_variables)
        optimizer._backend_update_step(grads, trainable_variables, optimizer.learning_rate)

    if steps:
        _accumulate(optimizer, steps, update, grads, trainable_variables)
    else:
        update(grads)
    if optimizer.use_ema:
        _average(optimizer)
    return None


def _accumulate(
    optimizer: Any, steps: int, update: Callable[[Any], None], grads: Any, variables: Any
) -> None:
    sums = [
        optimizer._accumulated_gradients[optimizer._get_variable_index(variable)]
        for variable in variables
    ]

    def update_with_mean(grads: Any) -> None:
        update([(grad + total) / steps for grad, total in zip(grads, sums, strict=True)])
        optimizer._backend_reset_gradient_accumulators()

    def add(grads: Any) -> None:
        optimizer._backend_increment_gradient_accumulators(grads, sums)

    is_last = tf.equal((tf.convert_to_tensor(optimizer._iterations) + 1) % steps, 0)
    _branch(is_last, update_with_mean, add, list(grads))


def _average(optimizer: Any) -> None:
    optimizer._update_model_variables_moving_average(optimizer._trainable_variables)
    if optimizer.ema_overwrite_frequency:
        due = tf.equal((optimizer.iterations + 1) % optimizer.ema_overwrite_frequency, 0)
        _branch(
            due,
            lambda _: optimizer._overwrite_model_variables_with_average_value(
                optimizer._trainable_variables
            ),
            lambda _: None,
            [],
        )


def _branch(
    condition: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], grads: list[Any]
) -> None:
    """Runs `yes` or `no` on every replica, where both may make the replicas meet.

    TensorFlow lets no replica meet others inside a condition of its own, so the replicas meet
    first, and the condition stands outside. It is the same on all of them.
    """
    share = current_share()

    def on_replica(branch: Callable[[Any], Any]) -> Callable[[Any], None]:
        def call(grads: Any) -> None:
            with running(share):
                branch(grads)

        return call

    def meet(strategy: Any, condition: Any, grads: Any) -> None:
        def each(branch: Callable[[Any], Any]) -> Callable[[], Any]:
            def run() -> Any:
                strategy.extended.call_for_each_replica(on_replica(branch), args=(grads,))
                return tf.constant(0)

            return run

        tf.cond(strategy.experimental_local_results(condition)[0], each(yes), each(no))

    tf.distribute.get_replica_context().merge_call(meet, args=(condition, grads))


def _replicas_need_no_meeting() -> bool:
    return bool(tf.__internal__.distribute.strategy_supports_no_merge_call())


def _times(grad: Any, share: ReplicaShare) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(share.weigh(grad.values), grad.indices, grad.dense_shape)
    return share.weigh(grad)


def _sum(grads: list[Any], share: ReplicaShare) -> list[Any]:
    present = [grad for grad in grads if grad is not None]
    if not present:
        return grads
    summed = iter(
        tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, present)
    )
    return [None if grad is None else next(summed) for grad in grads]


@contextlib.contextmanager
def _gradients_global(share: ReplicaShare) -> Iterator[None]:
    share.gradients_are_global = True
    try:
        yield
    finally:
        share.gradients_are_global = False
