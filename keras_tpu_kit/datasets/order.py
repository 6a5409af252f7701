"""Which rows make up which batch: a pure function of plan, seed and step, without state.

A permutation is never stored: row `i` of epoch `e` is computed from `(seed, e, i)`, so any batch
can be asked for by its step, batches can be made in parallel, and training can go on from any
step. The cut over replicas is not part of the order, so the same seed gives the same global
batches for any number of replicas and workers.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from keras_tpu_kit.plan import BatchPlan


def training_rows(step: tf.Tensor, plan: BatchPlan, *, shuffle: bool, seed: int) -> tf.Tensor:
    """Returns the indices of the rows that this worker reads for one training step.

    Args:
        step: Steps before this one, over all epochs; scalar, int64.
        plan: The cut of the data.
        shuffle: Whether each epoch has another order.
        seed: Which orders.

    Source: the permutation is TensorFlow's `RandomIndexShuffle`, a block cipher over the
    indices, as in `tf.data.experimental` global shuffling.

    Example:

    >>> from keras_tpu_kit.topology import Topology
    >>> plan = BatchPlan(topology=Topology(accelerator="cpu"), num_samples=10,
    ...                  per_replica_batch_size=4)
    >>> training_rows(tf.constant(3, tf.int64), plan, shuffle=False, seed=0).numpy()
    array([4, 5, 6, 7])
    """
    epoch, batch = step // plan.steps_per_epoch, step % plan.steps_per_epoch
    first = batch * plan.global_batch_size + plan.topology.worker_index * plan.worker_batch_size
    positions = tf.range(first, first + plan.worker_batch_size)
    if not shuffle:
        return positions
    return tf.random.experimental.index_shuffle(
        positions, tf.stack([np.int64(seed), epoch]), plan.num_samples - 1
    )


def training_element(
    element: tf.Tensor, plan: BatchPlan, *, shuffle: bool, seed: int, initial_step: int = 0
) -> tf.Tensor:
    """Returns the indices of the rows in one element of a worker's training dataset.

    With one worker an element is a step. With W of them it holds this worker's rows of W
    steps, one after the other: `tf.distribute` cuts each element into pieces of one replica's
    batch, as if it were a global batch, and a worker's replicas take 1/W of them a step.
    Source: `batch_sizes_for_worker` in tensorflow/python/data/experimental/ops/distribute.py.

    Args:
        element: Position in the worker's dataset; scalar, int64.
        plan: The cut of the data.
        shuffle: Whether each epoch has another order.
        seed: Which orders.
        initial_step: The step, counted over all epochs, that comes first.
    """
    workers = plan.topology.num_workers
    steps = [initial_step + element * workers + offset for offset in range(workers)]
    return tf.concat([training_rows(s, plan, shuffle=shuffle, seed=seed) for s in steps], axis=0)


def epoch_order(epoch: tf.Tensor, count: int, *, seed: int) -> tf.Tensor:
    """Returns a permutation of `range(count)` for one epoch; shape `(count,)`, int64.

    Args:
        epoch: Epochs before this one; scalar, int64.
        count: Things to put in order.
        seed: Which orders.
    """
    seeds = tf.stack([np.int64(seed), epoch])
    return tf.random.experimental.index_shuffle(tf.range(count, dtype=tf.int64), seeds, count - 1)
