"""A model's own `train_step`, `compute_loss` or `add_loss`: is its gradient the mean over rows?

Only then is the gradient of the replicas, weighed by rows, that of one device. A step that sums
over its batch trains with a gradient too small, silently, and its code does not say so. So it is
asked, once, before training: it runs on a few rows as a replica's part of a global batch, and on
the whole of that batch, which is those same rows several times. Its optimizers are given the
gradients and update nothing, and afterwards all variables are as they were.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from keras import tree

from keras_tpu_kit.checks.model import check_own_step, note_unasked_step
from keras_tpu_kit.errors import Finding, KitError, ReplicationError, refuse
from keras_tpu_kit.replication import batches, preparation
from keras_tpu_kit.replication.examples import in_one_line, made_up
from keras_tpu_kit.replication.refusals import own_part
from keras_tpu_kit.replication.share import ReplicaShare, running
from keras_tpu_kit.replication.untouched import left_as_they_were, variables_of
from keras_tpu_kit.stock_training import TRACE_ERRORS

_TIMES = 8
# Each batch is run twice, to see whether it draws random numbers, and then so often.
_RUNS = 6
# Two runs of one batch that differ by more have drawn random numbers.
_NOISE = 1e-4


class _Answer(NamedTuple):
    """How often as long a gradient was for all rows as for their part, and whether by chance."""

    growth: float
    is_random: bool


def ask_own_step(model: Any, batch: Any, static_shapes: bool) -> Finding | None:
    """Runs a step of the model's own on rows made up, and refuses it if it sums over them.

    Nothing runs where there is one replica, or where the step and all that adds to its loss are
    Keras's own.

    Args:
        model: A compiled model whose variables have been made.
        batch: One batch of its training data, or `tf.TypeSpec`s of it; only structure, shapes and
            dtypes are used.
        static_shapes: Whether the step cannot be traced for a batch of any size.

    Returns:
        A warning where the step could not be asked, which does not mean that it is wrong.

    Raises:
        ReplicationError: If its gradient is not that of a mean over rows.
    """
    name = own_part(model)
    if name is None or model.distribute_strategy.num_replicas_in_sync == 1:
        return None
    try:
        answers = _answers(model, batch, static_shapes)
    except KitError:
        raise
    except TRACE_ERRORS as error:
        return note_unasked_step(name, in_one_line(error))
    for answer in answers:
        if answer is not None:
            refuse(ReplicationError, check_own_step(name, *answer, times=_TIMES))
    if not answers:
        return note_unasked_step(name, "it gave no Keras optimizer a gradient")
    return note_unasked_step(name, "its gradient was 0 or not finite" if None in answers else "")


def _answers(model: Any, batch: Any, static_shapes: bool) -> list[_Answer | None]:
    """Returns what each call of an optimizer tells, `None` where it tells nothing."""
    rows = _rows_made_up(tree.map_structure(preparation.to_symbolic, batch))
    if static_shapes or model.run_eagerly:
        part, whole = _squares(model, rows, is_static=True)
    else:
        try:
            part, whole = _squares(model, rows, is_static=False)
        except TRACE_ERRORS:  # The step needs to know its rows when it is traced.
            part, whole = _squares(model, rows, is_static=True)
    answers: list[_Answer | None] = []
    for small, large in zip(part.T, whole.T, strict=True):
        if not (np.isfinite([small, large]).all() and small.any() and large.any()):
            answers.append(None)
            continue
        is_random = _differ(small) or _differ(large)
        # A part is weighed by its rows, and all parts together are the whole.
        growth = np.sqrt(np.mean(large) / np.mean(small)) / _TIMES
        answers.append(_Answer(float(growth), is_random))
    return answers


def _rows_made_up(batch: Any) -> Any:
    """Returns a batch of the shapes and dtypes of `batch`, the same one every time."""
    random = np.random.RandomState(0)

    def example(part: Any) -> Any:
        return None if part is None else made_up(part.shape, tf.as_dtype(part.dtype), random)

    return tree.map_structure(example, batch)


def _squares(model: Any, rows: Any, is_static: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the squared lengths of the gradients, by run and call of an optimizer.

    Those of the rows, as a part of a batch that holds them `_TIMES` times, and of that batch.
    """
    strategy = model.distribute_strategy
    leaves = tree.flatten(rows)
    present = [leaf for leaf in leaves if leaf is not None]

    total: Any = int(present[0].shape[0]) * _TIMES
    total = total if is_static else tf.constant(total, "int64")

    def on_replica(data: Any) -> Any:
        captured: list[list[Any]] = []
        part = batches.rows_of(data, like=total)
        tracker = model._loss_tracker
        with running(ReplicaShare(part, total, loss_tracker=tracker, captured=captured)):
            model.train_step(data)
            return tf.convert_to_tensor([_square(grads) for grads in captured], "float64")

    def step(present: list[Any]) -> Any:
        given = iter(present)
        data = tree.pack_sequence_as(rows, [x if x is None else next(given) for x in leaves])
        squares = strategy.run(lambda: on_replica(data))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, squares, axis=None)

    in_graph: Any = tf.function(step, autograph=False)

    def traced(present: list[Any]) -> Any:
        shapes = [leaf.shape if is_static else [None, *leaf.shape[1:]] for leaf in present]
        return in_graph.get_concrete_function(
            [tf.TensorSpec(shape, leaf.dtype) for shape, leaf in zip(shapes, present, strict=True)]
        )

    whole = [tf.concat([leaf] * _TIMES, axis=0) for leaf in present]
    part_step = whole_step = step
    variables = variables_of(model)
    if not model.run_eagerly:
        part_step, whole_step = traced(present), traced(whole)
        variables += [*part_step.graph.variables, *whole_step.graph.variables]
    with left_as_they_were(strategy, variables):
        found = [(part_step(present).numpy(), whole_step(whole).numpy()) for _ in range(2)]
        # All workers, which must run alike, have the same sums over the replicas before them.
        if any(_differ(np.stack(runs)) for runs in zip(*found, strict=True)):
            found += [(part_step(present).numpy(), whole_step(whole).numpy()) for _ in range(_RUNS)]
    small, large = zip(*found, strict=True)
    return np.stack(small), np.stack(large)


def _differ(squares: np.ndarray) -> bool:
    return bool((np.ptp(squares, axis=0) > _NOISE * np.max(squares, axis=0, initial=0)).any())


def _square(grads: list[Any]) -> Any:
    return tf.add_n(
        [tf.zeros([], "float64")]
        + [tf.reduce_sum(tf.square(tf.cast(_values(grad), "float64"))) for grad in grads]
    )


def _values(grad: Any) -> Any:
    """Returns the elements of a gradient that are not 0, each once."""
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    _, place = tf.unique(grad.indices)
    return tf.math.unsorted_segment_sum(grad.values, place, tf.size(grad.indices))
