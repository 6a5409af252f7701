"""The plan that data itself suggests."""

from __future__ import annotations

from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.checks import batches as batch_rules
from keras_tpu_kit.checks import data as rules
from keras_tpu_kit.checks.steps import INFINITE, check_cardinality
from keras_tpu_kit.datasets.inspection import DataFacts, inspect_data
from keras_tpu_kit.datasets.make import check_columns, is_endless
from keras_tpu_kit.errors import DataError, Finding, PlanError, refuse
from keras_tpu_kit.plan import BatchPlan, plan_batches, require_count
from keras_tpu_kit.topology import Topology


def plan_for_data(
    topology: Topology,
    data: Any,
    *,
    global_batch_size: int | None = None,
    per_replica_batch_size: int | None = None,
    target_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    validation_data: Any = None,
    num_samples: int | None = None,
    num_validation_samples: int | None = None,
    steps_per_execution: int | Literal["auto"] = "auto",
) -> BatchPlan:
    """Returns the plan for data, whose rows are counted without reading them.

    A dataset that is batched already brings its batch size along. A `PyDataset` is asked for
    its first and its last batch.

    Args:
        topology: Where training runs.
        data: Training data, as `make_dataset` takes it.
        global_batch_size: Rows of one step over all replicas. This and the next three are the
            ways of `plan_batches` to say a size.
        per_replica_batch_size: Rows of one step on one replica.
        target_batch_size: About how many rows a step takes over all replicas.
        steps_per_epoch: Steps of one epoch. For data without an end it goes with the batch size,
            and the two say what an epoch is.
        validation_data: Validation data, as `make_dataset` takes it.
        num_samples: Training rows, where the data does not tell: a dataset that was filtered,
            or read from files, or that repeats.
        num_validation_samples: Validation rows, where the validation data does not tell.
        steps_per_execution: Steps in one call of the train function, a divisor of the epoch,
            or `"auto"`.

    Raises:
        DataError: If the data cannot be fed, does not tell its rows, or contradicts what is
            given.
        PlanError: If the numbers cannot work.

    Example:

    >>> topology = Topology(accelerator="cpu", num_replicas=2)
    >>> dataset = tf.data.Dataset.range(100).batch(20)
    >>> plan = plan_for_data(topology, dataset)
    >>> plan.global_batch_size, plan.steps_per_epoch
    (20, 5)
    """
    facts = _facts(topology, data)
    validation = 0
    if validation_data is not None:
        validation = _rows(
            validation_data,
            _facts(topology, validation_data),
            num_validation_samples,
            "num_validation_samples",
        )
    sizes = {
        "global_batch_size": global_batch_size,
        "per_replica_batch_size": per_replica_batch_size,
        "target_batch_size": target_batch_size,
        "steps_per_epoch": steps_per_epoch,
    }
    if facts.kind == "dataset" and facts.is_batched:
        size = _own_batch(facts, topology, sizes)
        if facts.num_batches == INFINITE and num_samples is None and steps_per_epoch is not None:
            num_samples = size * steps_per_epoch
        rows = _rows(data, facts, num_samples, "num_samples")
        if steps_per_epoch is not None:
            finding = check_cardinality(rows // size, steps_per_epoch)
            refuse(PlanError, finding)
        sizes = {"global_batch_size": size}
    else:
        if num_samples is None and is_endless(data, facts):
            num_samples, sizes = _endless_epoch(topology, sizes)
        rows = _rows(data, facts, num_samples, "num_samples")
        if facts.kind == "PyDataset" and not any(sizes.values()):
            sizes = {"target_batch_size": facts.batch_size}
    return plan_batches(
        topology,
        num_samples=rows,
        num_validation_samples=validation,
        steps_per_execution=steps_per_execution,
        **sizes,
    )


def _facts(topology: Topology, data: Any) -> DataFacts:
    """Returns the facts of data that can be fed, or raises."""
    facts = inspect_data(data)
    for finding in (
        rules.check_generator(facts.kind, topology.num_replicas),
        rules.check_feedable(facts.kind),
        check_columns(data, facts),
    ):
        refuse(DataError, finding)
    return facts


def _endless_epoch(
    topology: Topology, sizes: dict[str, int | None]
) -> tuple[int | None, dict[str, int | None]]:
    """Returns the rows of an epoch over data without an end, and the sizes that are left to say."""
    steps, size = sizes["steps_per_epoch"], sizes["global_batch_size"]
    if size is None and sizes["per_replica_batch_size"] is not None:
        size = sizes["per_replica_batch_size"] * topology.num_replicas
    if steps is None or size is None:
        return None, sizes
    rows = require_count("steps_per_epoch", steps, 1) * require_count("batch size", size, 1)
    return rows, {**sizes, "steps_per_epoch": None}


def _own_batch(facts: DataFacts, topology: Topology, sizes: dict[str, int | None]) -> int:
    """Returns the global batch size of a dataset of batches, held against what was asked for."""
    asked = sizes["global_batch_size"] or sizes["target_batch_size"]
    if sizes["per_replica_batch_size"] is not None:
        asked = sizes["per_replica_batch_size"] * topology.num_replicas
    size = facts.batch_size or asked
    if size is None:
        raise DataError(_batch_unknown())
    if asked is not None and asked != size:
        raise DataError(rules.check_batch_planned(size, asked) or _batch_unknown())
    finding = batch_rules.check_global_batch(size, topology.num_replicas)
    refuse(PlanError, finding)
    return size


def _rows(data: Any, facts: DataFacts, given: int | None, argument: str) -> int:
    """Returns the rows of data, as it tells or as given; both must agree."""
    rows = facts.num_samples
    if isinstance(data, keras.utils.PyDataset) and facts.num_batches and facts.batch_size:
        rows = _py_dataset_rows(data, facts.num_batches, facts.batch_size)
    if rows is None:
        if given is None:
            raise DataError(_rows_unknown(argument, endless=is_endless(data, facts)))
        return given
    if given is not None:
        finding = rules.check_rows_planned(rows, given, argument)
        refuse(DataError, finding)
    return rows


def _py_dataset_rows(data: Any, num_batches: int, batch_size: int) -> int | None:
    """Returns the rows of a `PyDataset` whose batches are alike but for the last."""
    if num_batches < 1:
        return None
    last = tf.nest.flatten(data[num_batches - 1])[0]
    return (num_batches - 1) * batch_size + int(np.shape(last)[0])


def _rows_unknown(argument: str, *, endless: bool) -> Finding:
    return Finding(
        "rows-unknown",
        "error",
        what="The dataset repeats without end, so it has no number of rows."
        if endless
        else "The dataset does not tell how many rows it holds.",
        why="Steps and epochs are counted in rows; a filter, a generator or files hide their "
        "number until they were read.",
        fix="Pass steps_per_epoch= and global_batch_size=, which say what an epoch is."
        if endless and argument == "num_samples"
        else f"Pass {argument}=, or add "
        ".apply(tf.data.experimental.assert_cardinality(rows)) before .batch().",
    )


def _batch_unknown() -> Finding:
    return Finding(
        "batch-unknown",
        "error",
        what="The dataset comes in batches whose size it does not tell.",
        why="The plan describes the batches as they are.",
        fix="Pass global_batch_size= with the size that it was batched by.",
    )
