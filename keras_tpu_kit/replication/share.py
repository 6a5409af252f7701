"""Which part of a global batch the replica that runs now holds."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


@dataclasses.dataclass
class ReplicaShare:
    """One replica's part of one global batch, for as long as its step runs.

    Args:
        rows: Rows on this replica; a scalar integer tensor, or an `int` where it is static.
        total: Rows of the global batch, of the same kind.
        row_mask: Which rows count, shape `(padded rows,)`, bool; `None` where all do.
        loss_tracker: The model's own mean of the loss.
        captured: Where optimizers leave their gradients, weighed by rows, in a step that is only
            asked: they update nothing, and the global batch is taken to hold nothing but copies of
            this part. `None` in a step that trains.
    """

    rows: Any
    total: Any
    row_mask: Any = None
    loss_tracker: Any = None
    captured: list[list[Any]] | None = None
    scaled_optimizers: set[int] = dataclasses.field(default_factory=set)
    gradients_are_global: bool = False
    statistics_are_global: bool = False
    loss_is_tracked: bool = False
    loss_is_scalar: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the part is known before the step runs, so that no replica can be empty."""
        return isinstance(self.rows, int) and isinstance(self.total, int)

    def weigh(self, value: Any) -> Any:
        """Returns `value` times this replica's part of the global batch."""
        return value * self.fraction(value.dtype)

    def fraction(self, dtype: Any) -> Any:
        """Returns this replica's part of the global batch, between 0 and 1."""
        return _ratio(self.rows, self.total, dtype)

    def inverse(self, dtype: Any) -> Any:
        """Returns how many such parts make the global batch; 0 on an empty replica."""
        return _ratio(self.total, self.rows, dtype)

    def padding(self, dtype: Any) -> Any:
        """Returns how many rows the replica computes for each one that counts."""
        if self.row_mask is None:
            return tf.constant(1, dtype)
        return _ratio(tf.size(self.row_mask), self.rows, dtype)

    def where_not_empty(self, value: Any, otherwise: Any) -> Any:
        """Returns `value`, or `otherwise` on a replica without a row."""
        return value if self.is_static else tf.where(self.rows > 0, value, otherwise)


def _ratio(above: Any, below: Any, dtype: Any) -> Any:
    if isinstance(above, int) and isinstance(below, int):
        return tf.constant(above / below, dtype)
    exact = tf.math.divide_no_nan(tf.cast(above, "float64"), tf.cast(below, "float64"))
    return tf.cast(exact, dtype)


def sum_over_replicas(value: Any) -> Any:
    """Returns the sum of `value` over all replicas, as a constant for gradients."""
    share = current_share()
    if share is not None and share.captured is not None:
        return tf.stop_gradient(value * share.inverse(value.dtype))
    context = tf.distribute.get_replica_context()
    return tf.stop_gradient(context.all_reduce(tf.distribute.ReduceOp.SUM, value))


# Replicas are traced in threads of their own, several models perhaps at once.
_running = threading.local()


def current_share() -> ReplicaShare | None:
    """Returns the share of the replica that runs in this thread, if it runs in the kit's step."""
    return getattr(_running, "share", None)


@contextlib.contextmanager
def running(share: ReplicaShare | None) -> Iterator[None]:
    """Makes `share` the current one while the block runs in this thread."""
    before = current_share()
    _running.share = share
    try:
        yield
    finally:
        _running.share = before
