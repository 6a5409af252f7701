"""What a model's training consumed, read from the model where that is exact."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_tpu_kit.replication import is_replicated, progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumed:
    """What one epoch of training took.

    Args:
        executions: Calls of the train function that ended.
        steps: Training steps that ran.
        rows: Rows over all replicas, or `None` where nobody counted them exactly.
        was_stopped: Whether `model.stop_training` was set, so that a short epoch is meant.
    """

    executions: int
    steps: int
    rows: int | None
    was_stopped: bool = False


def rows_seen(model: keras.Model) -> int | None:
    """Returns the rows that training consumed since the model's metrics were last reset.

    Read from the count of Keras's own loss tracker, which adds up the rows of each replica's
    batch. `None` where that is not their number: the model has a train step of its own, or the
    count has outgrown its dtype. Waits for the device, so read it once an epoch.

    Args:
        model: A compiled model.
    """
    if has_own_train_step(model):
        return None
    tracker = next(iter(model.metrics), None)
    if not isinstance(tracker, keras.metrics.Mean) or tracker.name != "loss":
        return None
    count = float(value_of(tracker.count))
    # Beyond the mantissa, adding a row may change nothing.
    exact_below = {"float32": 2.0**24, "float64": 2.0**53}.get(str(tracker.dtype), 0.0)
    return round(count) if count < exact_below else None


def metric_resets(model: keras.Model) -> int:
    """Returns how often the model's metrics were reset since this was first asked.

    Each `evaluate` resets them, one that a callback of the user's calls in the midst of an epoch
    as well; the rows before it are not counted any more then.

    Args:
        model: A compiled model.
    """
    counted = vars(model).get("reset_metrics")
    if not isinstance(counted, _CountedResets):
        # Beside Keras's tracking, as a method of this one model.
        counted = vars(model)["reset_metrics"] = _CountedResets(model.reset_metrics)
    return counted.count


class _CountedResets:
    def __init__(self, reset_metrics: Callable[[], None]) -> None:
        self.count = 0
        self._reset_metrics = reset_metrics

    def __call__(self) -> None:
        self.count += 1
        self._reset_metrics()


def updates_seen(model: keras.Model) -> int | None:
    """Returns the steps that the model has been trained, where each of them is counted.

    A replicated model counts its steps. Stock Keras counts updates: `None` with accumulated
    gradients or a scaled loss, which skip some, and for a train step of the model's own.

    Args:
        model: A compiled model.
    """
    if is_replicated(model):
        return progress(model).steps
    optimizer = model.optimizer
    if (
        optimizer is None
        or has_own_train_step(model)
        or optimizer.gradient_accumulation_steps
        or isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    ):
        return None
    return int(value_of(optimizer.iterations))


def steps_run(executions: int, steps_per_execution: int, updates: int | None) -> int:
    """Returns the steps of an epoch: the lesser of two bounds from above.

    The last execution may be cut short by the end of the data, and a step that met that end
    without a batch still counts as an update.

    Args:
        executions: Calls of the train function that ended.
        steps_per_execution: Steps of a whole execution.
        updates: Updates of the optimizer, or `None` where they are not counted.

    Example:

    >>> steps_run(3, 4, updates=10), steps_run(5, 1, updates=6), steps_run(5, 2, updates=None)
    (10, 5, 10)
    """
    most = executions * steps_per_execution
    return most if updates is None else min(most, updates)


def value_of(variable: Any) -> np.ndarray:
    """Returns the value of a Keras variable; what replicas add up to is their sum.

    By way of a tensor: NumPy asks variables for a copy in a way that Keras does not know, and
    `int` of a variable fails under MirroredStrategy.
    """
    return np.asarray(keras.ops.convert_to_tensor(variable).numpy())


def has_own_train_step(model: Any) -> bool:
    """Returns whether the model's class overrides Keras's `train_step`."""
    return type(model).train_step is not keras.Model.train_step
