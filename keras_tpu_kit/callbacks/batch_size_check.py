"""Holds each epoch to the rows that were planned, cut evenly over the replicas."""

from __future__ import annotations

from typing import Any

from keras_tpu_kit.callbacks.consumption import Consumed
from keras_tpu_kit.callbacks.epoch_observer import (
    EpochObserver,
    checked_on_problem,
    report_problem,
)
from keras_tpu_kit.checks import batches, model, steps
from keras_tpu_kit.errors import DataError, PlanError, ReplicationError
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import is_replicated


class BatchSizeCheck(EpochObserver):
    """Checks that every epoch consumes the rows that were planned, and no replica goes short.

    Works with no arguments: then an epoch whose rows the replicas do not divide is found, since
    stock Keras weighs the rows of short shards more. Models that went through
    `ktk.replicate` weigh every row alike, and may have any batch.

    Args:
        plan: The plan that training follows, or `None`.
        global_batch_size: Rows of one step over all replicas, instead of a plan.
        samples_per_epoch: Rows of one epoch over all replicas, instead of a plan.
        on_problem: `"raise"` to stop training, `"warn"` to go on.

    Raises:
        ReplicationError: Before the first step if the model has other replicas than the plan.
        PlanError: Before the first step if the replicas do not divide the batch.
        DataError: At the end of an epoch if other rows were consumed than planned, or some
            replicas had fewer than others.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> try:
    ...     model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, verbose=0,
    ...               callbacks=[BatchSizeCheck(samples_per_epoch=12)])
    ... except DataError as error:
    ...     error.finding.what
    'The epoch consumed 8 rows, not the 12 that were planned.'
    """

    def __init__(
        self,
        plan: BatchPlan | None = None,
        *,
        global_batch_size: int | None = None,
        samples_per_epoch: int | None = None,
        on_problem: str = "raise",
    ) -> None:
        super().__init__()
        if plan is not None:
            global_batch_size = plan.global_batch_size
            samples_per_epoch = plan.global_batch_size * plan.steps_per_epoch
        self.planned_replicas = plan.topology.num_replicas if plan else None
        self.global_batch_size = global_batch_size
        self.samples_per_epoch = samples_per_epoch
        self.on_problem = checked_on_problem(on_problem)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Compares the model's replicas with the plan's and with the batch."""
        if self.planned_replicas is not None:
            finding = model.check_model_strategy(self.num_replicas, self.planned_replicas)
            report_problem(finding, ReplicationError, self.on_problem)
        if self.global_batch_size is not None and not is_replicated(self.model):
            finding = batches.check_global_batch(self.global_batch_size, self.num_replicas)
            report_problem(finding, PlanError, self.on_problem)

    def on_epoch_consumed(self, epoch: int, consumed: Consumed, logs: dict[str, Any]) -> None:
        """Compares the rows that were consumed with those that were planned."""
        rows, expected = consumed.rows, self.samples_per_epoch
        if rows is None:
            return
        if expected is not None and not (consumed.was_stopped and rows < expected):
            report_problem(steps.check_rows_seen(expected, rows), DataError, self.on_problem)
        if not is_replicated(self.model):
            finding = batches.check_epoch_rows(rows, consumed.steps, self.num_replicas)
            report_problem(finding, DataError, self.on_problem)
