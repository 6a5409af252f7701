"""Ends hopeless trials early, by what all workers have reported so far."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

from keras_tpu_kit.checks import pruning as rules
from keras_tpu_kit.plan import require_count


class Pruner(Protocol):
    """Says which trials end early."""

    def should_end(
        self, own: dict[int, float], others: list[dict[int, float]], direction: str
    ) -> bool:
        """Returns whether a trial shall end.

        Args:
            own: The objective of the trial by epoch, from 0.
            others: The same of each other trial, whether it has ended or not.
            direction: `"min"` or `"max"`: which way is better.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class MedianPruner:
    """Ends a trial whose best value is worse than the median of the others as far on.

    The trial keeps its best value and counts as "pruned".

    Args:
        warmup_epochs: Epochs that every trial trains, at least 1.
        min_trials: Other trials that must have come as far, at least 1.

    Raises:
        PlanError: If one of them is below 1.

    Example:

    >>> pruner = MedianPruner(warmup_epochs=1, min_trials=1)
    >>> pruner.should_end({0: 0.5}, [{0: 0.9, 1: 0.95}], "max")
    True
    """

    warmup_epochs: int = 2
    min_trials: int = 3

    def __post_init__(self) -> None:
        _at_least_one(self, "warmup_epochs", "min_trials")

    def should_end(
        self, own: dict[int, float], others: list[dict[int, float]], direction: str
    ) -> bool:
        """Returns whether a trial falls behind the median of the others."""
        return rules.falls_behind_median(
            own,
            others,
            direction,
            warmup_epochs=self.warmup_epochs,
            min_trials=self.min_trials,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatiencePruner:
    """Ends a trial that has not become better for some epochs.

    Args:
        patience: Epochs without a better value, at least 1.
        min_delta: What a value must be better by to count.
        warmup_epochs: Epochs that every trial trains, at least 1.

    Raises:
        PlanError: If `patience` or `warmup_epochs` is below 1.

    Example:

    >>> PatiencePruner(patience=1).should_end({0: 0.5, 1: 0.4}, [], "max")
    True
    """

    patience: int = 3
    min_delta: float = 0.0
    warmup_epochs: int = 1

    def __post_init__(self) -> None:
        _at_least_one(self, "patience", "warmup_epochs")

    def should_end(
        self, own: dict[int, float], others: list[dict[int, float]], direction: str
    ) -> bool:
        """Returns whether the trial's best value is `patience` epochs old."""
        return rules.has_stalled(
            own,
            direction,
            patience=self.patience,
            min_delta=self.min_delta,
            warmup_epochs=self.warmup_epochs,
        )


def judge(pruner: Pruner, oracle: Any, trial: Any) -> bool:
    """Returns whether a pruner ends a trial, by what an oracle was told of all of them.

    Args:
        pruner: Says which trials end early.
        oracle: The oracle that epochs are reported to.
        trial: The trial whose epoch was just reported.
    """
    objective = oracle.objective
    others = [
        epochs_of(other, objective.name)
        for other in oracle.trials.values()
        if other.trial_id != trial.trial_id
    ]
    own = epochs_of(trial, objective.name)
    return pruner.should_end(own, [other for other in others if other], objective.direction)


def epochs_of(trial: Any, name: str) -> dict[int, float]:
    """Returns a metric of a trial by epoch; empty where it was never reported."""
    if not trial.metrics.exists(name):
        return {}
    return {int(each.step): float(each.mean()) for each in trial.metrics.get_history(name)}


def _at_least_one(pruner: Any, *names: str) -> None:
    for name in names:
        value = getattr(pruner, name)
        require_count(name, value, 1)
