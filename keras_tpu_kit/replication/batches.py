"""How a global batch lies on the replicas: counting its rows, and cutting one given whole."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import tree


def count_rows(strategy: tf.distribute.Strategy, data: Any) -> Any:
    """Returns the rows of a global batch, over all replicas.

    An `int` where all replicas of this process are known to hold the same number, so that
    the step needs no arithmetic for it; a scalar int64 tensor otherwise.

    Args:
        strategy: A strategy with several replicas.
        data: A distributed batch, any structure.
    """
    local = strategy.experimental_local_results(_first_leaf(data))
    static = {part.shape[0] for part in local}
    if in_several_processes(strategy):
        rows = strategy.run(lambda data: tf.shape(_first_leaf(data), out_type="int64")[0], (data,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, rows, axis=None)
    if len(static) == 1 and None not in static:
        return int(static.pop()) * len(local)
    return tf.add_n([tf.shape(part, out_type="int64")[0] for part in local])


def rows_of(data: Any, like: Any) -> Any:
    """Returns the rows of one replica's part: an `int` where `like` is, else int64."""
    first = _first_leaf(data)
    return first.shape[0] if isinstance(like, int) else tf.shape(first, out_type="int64")[0]


def split(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """Returns a whole batch cut over the replicas of this process, in order.

    Args:
        strategy: The model's strategy.
        batch: Arrays or tensors, any structure; parts that are `None` stay so.
    """
    if strategy.num_replicas_in_sync == 1:
        return tree.map_structure(_tensor, batch)
    batch = tree.map_structure(_tensor, batch)
    rows = int(tf.shape(_first_leaf(batch))[0])
    parts = strategy.num_replicas_in_sync
    sizes = [rows // parts + (i < rows % parts) for i in range(parts)]
    starts = [sum(sizes[:i]) for i in range(parts)]

    def cut(leaf: Any) -> Any:
        if leaf is None:
            return None
        return strategy.experimental_distribute_values_from_function(
            lambda context: leaf[
                starts[context.replica_id_in_sync_group] :
            ][: sizes[context.replica_id_in_sync_group]]
        )

    return tree.map_structure(cut, batch)


def in_several_processes(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes hold some of the replicas."""
    return bool(strategy.extended._in_multi_worker_mode()) and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )


def _tensor(leaf: Any) -> Any:
    return None if leaf is None else tf.convert_to_tensor(leaf)


def _first_leaf(data: Any) -> Any:
    return next(leaf for leaf in tree.flatten(data) if leaf is not None)
