"""When a trial has no hope: rules on the values of its objective, epoch by epoch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping


def falls_behind_median(
    own: Mapping[int, float],
    others: Iterable[Mapping[int, float]],
    direction: str,
    *,
    warmup_epochs: int,
    min_trials: int,
) -> bool:
    """Returns whether a trial's best value is worse than the median of others as far on.

    Each trial is judged by its best value up to the same epoch, so that one bad epoch ends
    nothing. Others that never came so far have no say.
    Source: the median stopping rule of Golovin et al. 2017, "Google Vizier", section 3.2.

    Args:
        own: The trial's values by epoch, from 0.
        others: The same of each other trial.
        direction: `"min"` or `"max"`: which way is better.
        warmup_epochs: Epochs that every trial trains.
        min_trials: Others that it takes to judge.

    Example:

    >>> others = [{0: 0.9, 1: 0.8}, {0: 0.8, 1: 0.7}, {0: 0.7, 1: 0.6}]
    >>> falls_behind_median({0: 0.5, 1: 0.85}, others, "max", warmup_epochs=2, min_trials=3)
    False
    >>> falls_behind_median({0: 0.5, 1: 0.65}, others, "max", warmup_epochs=2, min_trials=3)
    True
    """
    if len(own) < warmup_epochs or not own:
        return False
    epoch = max(own)
    so_far = [
        best({at: value for at, value in other.items() if at <= epoch}, direction)
        for other in others
        if any(at >= epoch for at in other) and min(other) <= epoch
    ]
    if len(so_far) < min_trials:
        return False
    median = statistics.median(so_far)
    mine = best(own, direction)
    return mine > median if direction == "min" else mine < median


def has_stalled(
    own: Mapping[int, float],
    direction: str,
    *,
    patience: int,
    min_delta: float,
    warmup_epochs: int,
) -> bool:
    """Returns whether the best value is `patience` epochs old.

    Args:
        own: The trial's values by epoch, from 0.
        direction: `"min"` or `"max"`: which way is better.
        patience: Epochs without a better value.
        min_delta: What a value must be better by to count.
        warmup_epochs: Epochs that every trial trains.

    Example:

    >>> values = {0: 0.5, 1: 0.9, 2: 0.8, 3: 0.85}
    >>> has_stalled(values, "max", patience=2, min_delta=0.0, warmup_epochs=0)
    True
    >>> has_stalled(values, "max", patience=3, min_delta=0.0, warmup_epochs=0)
    False
    """
    if len(own) < warmup_epochs:
        return False
    sign = 1.0 if direction == "max" else -1.0
    reached, since = None, 0
    for epoch in sorted(own):
        value = sign * own[epoch]
        if reached is None or value > reached + min_delta:
            reached, since = value, 0
        else:
            since += 1
    return since >= patience


def best(values: Mapping[int, float], direction: str) -> float:
    """Returns the best of some values.

    Args:
        values: Values by epoch, at least one.
        direction: `"min"` or `"max"`: which way is better.
    """
    return min(values.values()) if direction == "min" else max(values.values())
