"""The door: from any data to the dataset that a plan asks for."""

from __future__ import annotations

import random
from typing import Any

import tensorflow as tf

from keras_tpu_kit.checks import data as rules
from keras_tpu_kit.checks.steps import INFINITE
from keras_tpu_kit.datasets import arrays, streams
from keras_tpu_kit.datasets.flow import Flow, cardinality, declare
from keras_tpu_kit.datasets.inspection import DataFacts, inspect_data, named_columns
from keras_tpu_kit.datasets.loading import load_rows
from keras_tpu_kit.errors import DataError, Finding, refuse
from keras_tpu_kit.plan import BatchPlan

# Rows among which a stream is shuffled, where nothing else is asked for.
SHUFFLE_BUFFER = 10_000


def make_dataset(
    data: Any,
    plan: BatchPlan,
    *,
    training: bool = True,
    shuffle: bool = True,
    seed: int | None = None,
    cache: bool | str = False,
    shuffle_buffer: int | None = None,
    initial_step: int = 0,
) -> tf.data.Dataset:
    """Returns the batches that a plan asks for, ready for `fit`.

    For training: shuffled anew each epoch, without end, every batch of
    `plan.global_batch_size` rows. For validation: in order, each row once, in batches of exactly
    `plan.validation_batches` rows. Both end in a prefetch, and on several workers each reads its
    own rows of every global batch.

    For a seed the global batches are the same whatever the number of replicas or workers, and
    every iterator starts with those of `initial_step`.

    Args:
        data: Arrays, or a tuple `(x, y)` or `(x, y, sample_weight)` of arrays or of dicts and
            lists of them; memory-mapped arrays stay in their file. Or a `tf.data.Dataset`
            of single rows, or of batches of the plan's size. Or a `keras.utils.PyDataset`.
        plan: The cut of the data.
        training: Whether to train on it; otherwise it is validated on.
        shuffle: Whether each training epoch has another order. Arrays are gathered by index; a
            dataset of rows goes through a buffer; a `PyDataset`'s batches change places; a
            dataset of batches keeps its own order.
        seed: Which orders. `None` draws one with `random`, which
            `keras.utils.set_random_seed` governs; several workers, which have to agree, take 0.
        cache: `True` reads a dataset of rows or a `PyDataset` once, now, into memory, and
            gathers from there like from arrays; batches are kept by `Dataset.cache()`. A path
            keeps a dataset in files there. Arrays need neither.
        shuffle_buffer: Rows among which a dataset of rows is shuffled, 10,000 or all of
            them if not given.
        initial_step: The step, counted over all epochs, whose batch comes first: a training that
            was interrupted after 120 steps goes on with `initial_step=120`.

    Raises:
        DataError: If the data does not fit the plan, or is of a kind that would lose rows.

    Example:

    >>> import numpy as np
    >>> from keras_tpu_kit import Topology, plan_batches
    >>> plan = plan_batches(Topology(accelerator="cpu", num_replicas=2), num_samples=8,
    ...                     global_batch_size=4)
    >>> train = make_dataset(np.arange(8), plan, seed=1)
    >>> epoch = list(train.take(plan.steps_per_epoch).as_numpy_iterator())
    >>> [len(batch) for batch in epoch], sorted(np.concatenate(epoch).tolist())
    ([4, 4], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    facts = inspect_data(data)
    _require_fit(data, facts, plan, training=training)
    seed = _seed(seed, plan)
    if cache is True and facts.kind != "arrays" and not _keeps_its_batches(facts):
        data = load_rows(data, plan.num_samples if training else plan.num_validation_samples)
        facts = inspect_data(data)
    if isinstance(cache, str) and facts.kind == "dataset":
        data = data.cache(cache)
    elif cache is True and facts.kind == "dataset":
        data = data.cache()
    if not training:
        return _validation(data, facts, plan)
    if facts.kind == "arrays":
        batches = arrays.training_batches(
            data, plan, shuffle=shuffle, seed=seed, initial_step=initial_step
        )
    else:
        buffer_size = shuffle_buffer or min(plan.num_samples, SHUFFLE_BUFFER)
        batches = streams.training_batches(
            _one_pass(data, facts, plan, shuffle=shuffle, seed=seed, buffer_size=buffer_size),
            plan,
            is_endless=is_endless(data, facts),
            initial_step=initial_step,
        )
    size = plan.global_batch_size
    flow = Flow(is_batched=True, batch_size=size, last_batch_size=size)
    return _finished(batches, INFINITE, flow, tf.data.experimental.AutoShardPolicy.OFF)


def _one_pass(
    data: Any, facts: DataFacts, plan: BatchPlan, *, shuffle: bool, seed: int, buffer_size: int
) -> streams.Pass:
    """Returns the passes of training batches over a stream."""
    if facts.kind == "PyDataset":
        batches = streams.py_dataset_batches(data, shuffle=shuffle, seed=seed)
        return lambda epoch: batches(epoch).rebatch(plan.global_batch_size, drop_remainder=True)
    if facts.is_batched:
        return streams.whole_batches(data, plan)
    return streams.shuffled_rows(data, plan, shuffle=shuffle, seed=seed, buffer_size=buffer_size)


def _validation(data: Any, facts: DataFacts, plan: BatchPlan) -> tf.data.Dataset:
    """Returns the validation form of arrays or of a stream."""
    sizes = plan.validation_batches
    if facts.kind == "arrays":
        batches = arrays.validation_batches(data, plan)
    else:
        size = plan.global_batch_size
        if facts.kind == "PyDataset":
            one_pass = streams.py_dataset_batches(data, shuffle=False, seed=0)
            cut = one_pass(tf.constant(0, tf.int64)).rebatch(size)
        else:
            cut = data.rebatch(size) if facts.is_batched else data.batch(size)
        batches = streams.validation_batches(cut, plan)
    flow = Flow(
        is_batched=True,
        num_samples=plan.num_validation_samples,
        batch_size=sizes[0],
        last_batch_size=sizes[-1],
    )
    return _finished(batches, len(sizes), flow, tf.data.experimental.AutoShardPolicy.DATA)


def _finished(batches: tf.data.Dataset, elements: int, flow: Flow, policy: Any) -> tf.data.Dataset:
    """Returns batches with what tf.data and tf.distribute must know of them, prefetched."""
    options = tf.data.Options()
    options.deterministic = True
    # Training elements are a worker's own already; validation is dealt out piece by piece.
    options.experimental_distribute.auto_shard_policy = policy
    batches = batches.apply(tf.data.experimental.assert_cardinality(elements))
    return declare(batches.with_options(options), flow).prefetch(tf.data.AUTOTUNE)


def _keeps_its_batches(facts: DataFacts) -> bool:
    return facts.kind == "dataset" and facts.is_batched


def is_endless(data: Any, facts: DataFacts) -> bool:
    """Returns whether one pass over the data never ends."""
    return INFINITE in (facts.num_batches, cardinality(data) if facts.kind == "dataset" else None)


def _seed(seed: int | None, plan: BatchPlan) -> int:
    if seed is None:
        return 0 if plan.topology.num_workers > 1 else random.randrange(2**31)
    return seed


def _require_fit(data: Any, facts: DataFacts, plan: BatchPlan, *, training: bool) -> None:
    """Raises where the data is of a kind that cannot be fed, or does not fit the plan."""
    planned = plan.num_samples if training else plan.num_validation_samples
    argument = "num_samples" if training else "num_validation_samples"
    findings = [
        rules.check_generator(facts.kind, plan.topology.num_replicas),
        rules.check_feedable(facts.kind),
        check_columns(data, facts),
    ]
    if facts.num_samples is not None:
        findings.append(rules.check_rows_planned(facts.num_samples, planned, argument))
    if training and _keeps_its_batches(facts) and facts.batch_size is not None:
        findings.append(rules.check_batch_planned(facts.batch_size, plan.global_batch_size))
    for finding in findings:
        refuse(DataError, finding)


def check_columns(data: Any, facts: DataFacts) -> Finding | None:
    """Returns a finding where arrays that belong together differ in length.

    Args:
        data: As passed to `make_dataset`.
        facts: What `inspect_data` says of it.
    """
    if facts.kind != "arrays":
        return None
    return rules.check_lengths((name, int(leaf.shape[0])) for name, leaf in named_columns(data))
