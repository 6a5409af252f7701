"""How a global batch lies on the replicas: counting its rows, and cutting one given whole."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import tree

from keras_tpu_kit.replication.padding import Padded


def agreed_rows(strategy: tf.distribute.Strategy, element_spec: Any) -> int | None:
    """Returns the rows of each global batch, where the dataset of every worker tells its own.

    What a process knows of its own part says nothing of the others', and processes that trace
    different steps wait for each other for ever. So they are asked, once for each dataset: all of
    them have to call this.

    Args:
        strategy: A strategy whose replicas are in several processes.
        element_spec: What a distributed dataset says of its batches.
    """
    first = _first_leaf(element_spec)
    sizes = [spec.shape[0] for spec in getattr(first, "_value_specs", (first,))]
    known = [[size or 0, size is None] for size in sizes]
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(known[context.replica_id_in_sync_group % len(known)], "int64")
    )
    rows, unknown = strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None).numpy().tolist()
    return None if unknown else rows


def count_rows(strategy: tf.distribute.Strategy, data: Any, agreed: int | None = None) -> Any:
    """Returns the rows of a global batch, over all replicas.

    An `int` where all replicas are known to hold the same number, so that the step needs no
    arithmetic for it; a scalar int64 tensor otherwise.

    Args:
        strategy: A strategy with several replicas.
        data: A distributed batch, any structure.
        agreed: What `agreed_rows` returned, on several workers.
    """
    if agreed is not None and not isinstance(data, Padded):
        return agreed
    local = strategy.experimental_local_results(_first_leaf(data))
    static = {part.shape[0] for part in local}
    if isinstance(data, Padded) or in_several_processes(strategy):
        rows = strategy.run(lambda data: rows_of(data, like=None), (data,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, rows, axis=None)
    if len(static) == 1 and None not in static:
        return int(static.pop()) * len(local)
    return tf.add_n([tf.shape(part, out_type="int64")[0] for part in local])


def rows_of(data: Any, like: Any) -> Any:
    """Returns the rows of one replica's part: an `int` where `like` is, else int64."""
    if isinstance(data, Padded):
        return tf.reduce_sum(tf.cast(data.row_mask, "int64"))
    first = _first_leaf(data)
    return first.shape[0] if isinstance(like, int) else tf.shape(first, out_type="int64")[0]


def split(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """Returns a whole batch cut over the replicas, in order, as evenly as it divides.

    Args:
        strategy: The model's strategy.
        batch: Arrays or tensors, any structure; parts that are `None` stay so.
    """
    batch = tree.map_structure(_tensor, batch)
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return batch
    rows = int(tf.shape(_first_leaf(batch))[0])
    bounds = [rows * part // replicas for part in range(replicas + 1)]

    def cut(leaf: Any) -> Any:
        if leaf is None:
            return None
        return strategy.experimental_distribute_values_from_function(
            lambda context: leaf[
                bounds[context.replica_id_in_sync_group] : bounds[
                    context.replica_id_in_sync_group + 1
                ]
            ]
        )

    return tree.map_structure(cut, batch)


def split_in_graph(strategy: tf.distribute.Strategy, batch: Any) -> Any:
    """Returns a whole batch of tensors cut over the replicas, in order, inside a graph."""
    replicas = strategy.num_replicas_in_sync
    first = _first_leaf(batch)
    rows = tf.shape(first)[0] if first.shape[0] is None else first.shape[0]
    bounds = [rows * part // replicas for part in range(replicas + 1)]

    def part_of(leaf: Any, replica: int) -> Any:
        return leaf[bounds[replica] : bounds[replica + 1]]

    return tree.map_structure(
        lambda leaf: strategy.experimental_distribute_values_from_function(
            lambda context: part_of(leaf, context.replica_id_in_sync_group)
        ),
        batch,
    )


def fill_empty_parts(strategy: tf.distribute.Strategy, batch: Any) -> tuple[Any, list[bool]]:
    """Returns a split batch in which no replica is without a row, and which rows are real.

    Some layers, a recurrent cell among them, cannot compute on no row. A replica that has none is
    given the first row of the batch.

    Args:
        strategy: A strategy whose replicas are all in this process.
        batch: A distributed batch, any structure.
    """
    sizes = [int(tf.shape(part)[0]) for part in _parts(strategy, _first_leaf(batch))]
    real = [is_real for size in sizes for is_real in ([True] * size or [False])]
    if all(real):
        return batch, real
    donor = next(index for index, size in enumerate(sizes) if size)

    def filled(leaf: Any) -> Any:
        parts = _parts(strategy, leaf)
        return strategy.experimental_distribute_values_from_function(
            lambda context: (
                parts[context.replica_id_in_sync_group]
                if sizes[context.replica_id_in_sync_group]
                else parts[donor][:1]
            )
        )

    return tree.map_structure(lambda leaf: None if leaf is None else filled(leaf), batch), real


def _parts(strategy: tf.distribute.Strategy, leaf: Any) -> tuple[Any, ...]:
    return tuple(strategy.experimental_local_results(leaf))


def in_memory_of_its_own(data: Any) -> Any:
    """Returns a copy of one replica's part of a batch, for replicas on a CPU.

    TensorFlow may compute in place where it sees no other user of the memory. It does not see that
    a slice of a batch lies in an array of NumPy's, such as one that a `PyDataset` cuts batches
    from: the array itself would be written to.

    Args:
        data: Tensors, any structure; parts that are `None` stay so.
    """
    return tree.map_structure(
        lambda leaf: None if leaf is None else tf.raw_ops.DeepCopy(x=leaf), data
    )


def is_split(batch: Any) -> bool:
    """Returns whether a batch lies on several replicas already."""
    return any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in tree.flatten(batch))


def is_on_cpu(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas of this process are all CPU devices."""
    return all(
        tf.DeviceSpec.from_string(device).device_type == "CPU"
        for device in strategy.extended.worker_devices
    )


def in_several_processes(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether other processes hold some of the replicas."""
    return bool(strategy.extended._in_multi_worker_mode()) and not isinstance(
        strategy, tf.distribute.TPUStrategy
    )


def num_processes(strategy: tf.distribute.Strategy) -> int:
    """Returns how many processes hold the strategy's replicas."""
    if not in_several_processes(strategy):
        return 1
    return int(strategy.num_replicas_in_sync // len(strategy.extended.worker_devices))


def _tensor(leaf: Any) -> Any:
    return None if leaf is None else tf.convert_to_tensor(leaf)


def _first_leaf(data: Any) -> Any:
    return next(leaf for leaf in tree.flatten(data) if leaf is not None)
