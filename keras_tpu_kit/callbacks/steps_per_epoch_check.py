"""Holds each epoch to the number of steps that was planned."""

from __future__ import annotations

from typing import Any

from keras_tpu_kit.callbacks.consumption import Consumed
from keras_tpu_kit.callbacks.epoch_observer import (
    EpochObserver,
    checked_on_problem,
    report_problem,
)
from keras_tpu_kit.checks import steps
from keras_tpu_kit.errors import PlanError
from keras_tpu_kit.plan import BatchPlan


class StepsPerEpochCheck(EpochObserver):
    """Checks that every epoch runs exactly the steps that were planned.

    Keras runs too few with a warning when data ends early, and too many in silence when
    `steps_per_execution` does not divide the epoch. Works with no arguments: then `fit`'s own
    number of steps is the plan, and since a callback does not see the data, an epoch that
    `steps_per_execution` does not divide is refused even where the data would end it in time.
    A training that a callback stops in mid-epoch is no problem.

    Args:
        plan: The plan that training follows, or `None`.
        steps_per_epoch: Steps of one epoch, instead of a plan.
        ends_with_data: Whether the data ends with the epoch, as `callbacks_for` finds out.
        on_problem: `"raise"` to stop training, `"warn"` to go on.

    Raises:
        PlanError: Before the first step if `fit` was given other steps or `steps_per_execution`
            does not divide them, at the end of an epoch if another number of steps ran.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> _ = model.fit(np.ones((8, 3)), np.ones((8, 1)), batch_size=4, verbose=0,
    ...               callbacks=[StepsPerEpochCheck()])
    """

    def __init__(
        self,
        plan: BatchPlan | None = None,
        *,
        steps_per_epoch: int | None = None,
        ends_with_data: bool = False,
        on_problem: str = "raise",
    ) -> None:
        super().__init__()
        self.ends_with_data = ends_with_data
        self.steps_per_epoch = plan.steps_per_epoch if plan else steps_per_epoch
        self.on_problem = checked_on_problem(on_problem)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Compares what `fit` is about to do with the plan, before the first step."""
        announced = self.params.get("steps")
        if announced is None:
            return
        finding = steps.check_steps_per_execution(
            announced, int(self.model.steps_per_execution), ends_with_data=self.ends_with_data
        )
        if self.steps_per_epoch is not None:
            finding = steps.check_steps_announced(self.steps_per_epoch, announced) or finding
        report_problem(finding, PlanError, self.on_problem)

    def on_epoch_consumed(self, epoch: int, consumed: Consumed, logs: dict[str, Any]) -> None:
        """Compares the steps that ran with those that were planned."""
        expected = self.steps_per_epoch or self.params.get("steps")
        if expected is None or (consumed.was_stopped and consumed.steps < expected):
            return
        finding = steps.check_steps_seen(expected, consumed.steps)
        report_problem(finding, PlanError, self.on_problem)
