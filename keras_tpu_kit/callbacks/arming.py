"""Arms a call of `fit`: all that can be checked before it is checked here."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import keras

from keras_tpu_kit.callbacks import examination
from keras_tpu_kit.callbacks.batch_size_check import BatchSizeCheck
from keras_tpu_kit.callbacks.epoch_observer import OnProblem, checked_on_problem, report_problem
from keras_tpu_kit.callbacks.examination import Problem
from keras_tpu_kit.callbacks.expectation import ends_with_data, rows_of_epoch, steps_of
from keras_tpu_kit.callbacks.flops import step_flops
from keras_tpu_kit.callbacks.steps_per_epoch_check import StepsPerEpochCheck
from keras_tpu_kit.callbacks.throughput_monitor import ThroughputMonitor
from keras_tpu_kit.checks.data import check_validation_split, split_rows
from keras_tpu_kit.datasets import DataFacts, inspect_data
from keras_tpu_kit.errors import DataError, refuse
from keras_tpu_kit.plan import BatchPlan, require_count
from keras_tpu_kit.strategy import describe_strategy
from keras_tpu_kit.throughput import CHIPS

_log = logging.getLogger("keras_tpu_kit")


def callbacks_for(
    model: keras.Model,
    data: Any,
    *,
    batch_size: int | None = None,
    validation_data: Any = None,
    validation_split: float = 0.0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    epochs: int = 1,
    validation_batch_size: int | None = None,
    on_problem: str = "raise",
) -> list[keras.callbacks.Callback]:
    """Checks a call of `fit` before it is made, and returns the callbacks that watch over it.

    Pass what `fit` will be given. The checks run here, since Keras's own first step stops with
    an unrelated message before any callback is called. Models that went through `ktk.replicate`
    may have any batch, validation data of any length, and strings.

    Args:
        model: A compiled model, made by the kit or not.
        data: What `fit` takes as training data; arrays as a tuple `(x, y)` or
            `(x, y, sample_weight)`.
        batch_size: As passed to `fit`, rows over all replicas.
        validation_data: As passed to `fit`.
        validation_split: As passed to `fit`, the share of the arrays' last rows to validate on;
            `validation_data` comes before it.
        steps_per_epoch: As passed to `fit`.
        validation_steps: As passed to `fit`.
        epochs: As passed to `fit`.
        validation_batch_size: As passed to `fit`, rows over all replicas.
        on_problem: `"raise"`, or `"warn"` to train all the same, here and at the end of each
            epoch.

    Returns:
        `ThroughputMonitor`, `StepsPerEpochCheck` and `BatchSizeCheck`, knowing what the data
        told. Put them before callbacks that shall see the monitor's figures in `logs`.

    Raises:
        ReplicationError: If part of the model is not on all replicas, or stock Keras would
            train it wrongly there.
        PlanError: If the batch does not divide over the replicas, or the steps are not those
            of the data.
        DataError: If the data cannot be fed to several replicas.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> x, y = np.ones((1000, 3)), np.ones((1000, 1))
    >>> try:
    ...     callbacks_for(model, (x, y), batch_size=32, steps_per_epoch=50)
    ... except ValueError as error:
    ...     print(error.finding.fix)
    Leave steps_per_epoch out, or use steps_per_epoch=32.
    >>> [type(each).__name__ for each in callbacks_for(model, (x, y), batch_size=32)]
    ['ThroughputMonitor', 'StepsPerEpochCheck', 'BatchSizeCheck']
    """
    wish = checked_on_problem(on_problem)
    counts = {
        "batch_size": batch_size,
        "steps_per_epoch": steps_per_epoch,
        "validation_steps": validation_steps,
        "validation_batch_size": validation_batch_size,
    }
    for name, count in counts.items():
        if count is not None:
            require_count(name, count, 1)
    validation_rows = None
    facts = inspect_data(data, batch_size=batch_size, steps_per_epoch=steps_per_epoch)
    _report(examination.model_problems(model), wish)
    if validation_split and validation_data is None:
        refuse(DataError, check_validation_split(facts.kind, facts.num_samples, validation_split))
        if facts.num_samples is not None:
            training_rows, validation_rows = split_rows(facts.num_samples, validation_split)
            validation_data = data
            facts = inspect_data(
                data,
                batch_size=batch_size,
                steps_per_epoch=steps_per_epoch,
                num_samples=training_rows,
            )
    training = examination.training_problems(
        model, facts, batch_size=batch_size, steps_per_epoch=steps_per_epoch, epochs=epochs
    )
    _report(training, wish)
    if validation_data is not None:
        validation = inspect_data(
            validation_data,
            batch_size=validation_batch_size or batch_size,
            steps_per_epoch=validation_steps,
            num_samples=validation_rows,
        )
        _report(
            examination.validation_problems(model, validation, validation_steps=validation_steps),
            wish,
        )
    return [
        ThroughputMonitor(flops_per_step=_flops_for_mfu(model, facts)),
        StepsPerEpochCheck(
            steps_per_epoch=steps_of(facts, steps_per_epoch),
            ends_with_data=ends_with_data(facts, steps_per_epoch),
            on_problem=on_problem,
        ),
        BatchSizeCheck(
            samples_per_epoch=rows_of_epoch(facts, steps_per_epoch),
            on_problem=on_problem,
        ),
    ]


def plan_callbacks(
    plan: BatchPlan,
    data: Any = None,
    *,
    on_problem: str = "raise",
    flops_per_step: float | None = None,
    one_replica_rate: float | None = None,
) -> list[keras.callbacks.Callback]:
    """Checks data against the plan it was made for, and returns the callbacks that watch `fit`.

    Args:
        plan: The plan that training follows.
        data: What `fit` will be given: best the dataset that `ktk.make_dataset` returned.
        on_problem: `"raise"`, or `"warn"` to train all the same.
        flops_per_step: Operations of one step over all replicas, for MFU.
        one_replica_rate: Samples per second of one replica alone, for scaling efficiency.

    Returns:
        `ThroughputMonitor`, `StepsPerEpochCheck` and `BatchSizeCheck`, each with the plan.

    Raises:
        DataError: If the data is not what the plan was made for.

    Example:

    >>> import keras_tpu_kit as ktk
    >>> plan = ktk.plan_batches(ktk.Topology(accelerator="cpu"), num_samples=640,
    ...                         global_batch_size=32)
    >>> plan_callbacks(plan)[1].steps_per_epoch
    20
    """
    wish = checked_on_problem(on_problem)
    if data is not None:
        _report(examination.plan_problems(plan, inspect_data(data)), wish)
    return [
        ThroughputMonitor(plan, flops_per_step=flops_per_step, one_replica_rate=one_replica_rate),
        StepsPerEpochCheck(plan, on_problem=on_problem),
        BatchSizeCheck(plan, on_problem=on_problem),
    ]


def _report(problems: Iterable[Problem], on_problem: OnProblem) -> None:
    """Raises the first error, or warns of each; what is only worth knowing is logged."""
    for error, finding in problems:
        if finding.severity == "info":
            _log.info("%s", finding)
        else:
            report_problem(finding, error, on_problem, stacklevel=4)


def _flops_for_mfu(model: keras.Model, facts: DataFacts) -> float | None:
    """Returns the operations of a step where the chip's peak is known, so that they are of use."""
    chip = describe_strategy(model.distribute_strategy).chip
    if chip not in CHIPS or facts.batch_size is None:
        return None
    return step_flops(model, facts.batch_size)
