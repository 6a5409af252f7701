"""What is wrong with a call of `fit` that is about to be made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import keras

from keras_tpu_kit.callbacks.expectation import ends_with_data, missing_targets, steps_of
from keras_tpu_kit.checks import batches, data, steps
from keras_tpu_kit.datasets import DataFacts
from keras_tpu_kit.errors import DataError, Finding, KitError, PlanError, ReplicationError
from keras_tpu_kit.placement import placement_findings
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import is_replicated
from keras_tpu_kit.stock_training import stock_training_findings


class Problem(NamedTuple):
    """A finding, and the class to raise it as."""

    error: type[KitError]
    finding: Finding


def model_problems(model: keras.Model) -> Iterator[Problem]:
    """Yields what keeps a model from training right on its replicas.

    Args:
        model: A compiled model.
    """
    for finding in placement_findings(model):
        yield Problem(ReplicationError, finding)
    if is_replicated(model):
        return
    for finding in stock_training_findings(model):
        yield Problem(ReplicationError, finding)
    strategy = model.distribute_strategy
    fused = steps.check_fused_steps(
        int(model.steps_per_execution),
        strategy.num_replicas_in_sync,
        # TensorFlow names the reduction nowhere else.
        type(getattr(strategy.extended, "_cross_device_ops", None)).__name__
        == "CollectiveAllReduce",
    )
    if fused is not None:
        yield Problem(PlanError, fused)


def training_problems(
    model: keras.Model,
    facts: DataFacts,
    *,
    batch_size: int | None,
    steps_per_epoch: int | None,
    epochs: int,
) -> Iterator[Problem]:
    """Yields what is wrong with training data, and with the steps that are cut from it.

    Args:
        model: A compiled model.
        facts: What is known of the data.
        batch_size: As passed to `fit`.
        steps_per_epoch: As passed to `fit`.
        epochs: As passed to `fit`.
    """
    num_replicas = model.distribute_strategy.num_replicas_in_sync
    replicated = is_replicated(model)
    facts = _batched_for(model, facts)
    untold = missing_targets(model, facts)
    if untold is not None:
        yield Problem(DataError, untold)
    yield from _feeding_problems(facts, num_replicas, replicated)
    if facts.kind == "arrays" and facts.num_samples is not None:
        finding = steps.check_array_steps(facts.num_samples, steps_per_epoch, batch_size)
    elif facts.num_batches is not None:
        finding = steps.check_cardinality(facts.num_batches, steps_per_epoch, epochs)
    else:
        finding = None
    if finding is not None:
        yield Problem(PlanError, finding)
    per_epoch = steps_of(facts, steps_per_epoch)
    if per_epoch is not None:
        fused = steps.check_steps_per_execution(
            per_epoch,
            int(model.steps_per_execution),
            ends_with_data=ends_with_data(facts, steps_per_epoch),
        )
        if fused is not None:
            yield Problem(PlanError, fused)
    if num_replicas > 1 and not replicated:
        yield from _cut_problems(facts, num_replicas)


def validation_problems(
    model: keras.Model, facts: DataFacts, *, validation_steps: int | None
) -> Iterator[Problem]:
    """Yields what is wrong with validation data; the replicated step takes any number of rows.

    Args:
        model: A compiled model.
        facts: What is known of the validation data.
        validation_steps: As passed to `fit`.
    """
    num_replicas = model.distribute_strategy.num_replicas_in_sync
    replicated = is_replicated(model)
    facts = _batched_for(model, facts)
    for problem in _feeding_problems(facts, num_replicas, replicated):
        if problem.finding.severity != "info":
            yield problem
    if facts.num_batches is not None:
        finding = steps.check_cardinality(facts.num_batches, validation_steps)
        if finding is not None:
            yield Problem(PlanError, _about_validation(finding))
    first = facts.last_batch_size if facts.num_batches == 1 else facts.batch_size
    if num_replicas > 1 and not replicated and first is not None:
        finding = batches.check_first_validation_batch(first, num_replicas)
        if finding is not None:
            yield Problem(DataError, finding)


def plan_problems(plan: BatchPlan, facts: DataFacts) -> Iterator[Problem]:
    """Yields where data is not what its plan was made for.

    Args:
        plan: The plan that training follows.
        facts: What is known of the training data.
    """
    yield from _feeding_problems(facts, plan.topology.num_replicas, replicated=True)
    found = []
    if facts.is_batched and facts.kind != "arrays" and facts.batch_size is not None:
        found.append(data.check_batch_planned(facts.batch_size, plan.global_batch_size))
    if facts.kind == "arrays" and facts.num_samples is not None:
        found.append(data.check_rows_planned(facts.num_samples, plan.num_samples))
    elif facts.num_batches is not None:
        found.append(steps.check_cardinality(facts.num_batches, plan.steps_per_epoch))
    yield from (Problem(DataError, finding) for finding in found if finding is not None)


def _batched_for(model: keras.Model, facts: DataFacts) -> DataFacts:
    """Returns the facts with `is_batched` as the model sees it, where shapes leave it open.

    Two columns of shape (4, 1) may be batches or rows; the model's inputs have as many axes as
    a batch has.
    """
    inputs = [len(tensor.shape) for tensor in getattr(model, "inputs", None) or []]
    columns = [len(column.shape) for column in facts.columns if column.name.startswith("x")]
    if facts.is_batched or not inputs or inputs != columns:
        return facts
    return dataclasses.replace(facts, is_batched=True)


def _feeding_problems(facts: DataFacts, num_replicas: int, replicated: bool) -> Iterator[Problem]:
    """Yields what can be said of data whatever the steps."""
    found = [data.check_generator(facts.kind, num_replicas), data.check_batched(facts.is_batched)]
    for column in facts.columns:
        found.append(data.check_input_kind(column.name, column.kind, num_replicas))
        if not replicated:
            found.append(data.check_input_dtype(column.name, column.dtype, num_replicas))
    if facts.is_prefetched is not None:
        found.append(data.check_prefetch(facts.is_prefetched))
    yield from (Problem(DataError, finding) for finding in found if finding is not None)


def _cut_problems(facts: DataFacts, num_replicas: int) -> Iterator[Problem]:
    """Yields which batches stock Keras cannot cut evenly over the replicas."""
    is_only_batch = facts.num_batches == 1 and facts.last_batch_size is not None
    if facts.batch_size is not None and not is_only_batch:
        finding = batches.check_global_batch(facts.batch_size, num_replicas)
        if finding is not None:
            yield Problem(PlanError, finding)
            return
    if facts.last_batch_size is not None:
        finding = batches.check_ragged_batch(facts.last_batch_size, num_replicas)
        if finding is not None:
            yield Problem(DataError, finding)


def _about_validation(finding: Finding) -> Finding:
    """Returns a finding on training steps, said of validation."""

    def said(text: str) -> str:
        return text.replace("steps_per_epoch", "validation_steps")

    return dataclasses.replace(
        finding,
        what=said(finding.what).replace("The dataset", "The validation dataset"),
        why=said(finding.why),
        fix=said(finding.fix),
        cures=tuple({said(name): value for name, value in cure.items()} for cure in finding.cures),
    )
