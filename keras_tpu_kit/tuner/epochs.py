"""Watches a trial's training: reports each epoch, and ends what has no hope."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import keras

from keras_tpu_kit.checks import search as rules
from keras_tpu_kit.errors import SearchError, refuse
from keras_tpu_kit.tuner.internals import MultiObjective

if TYPE_CHECKING:
    from keras_tpu_kit.tuner.trial_run import TrialRun


class EpochReporter(keras.callbacks.Callback):  # type: ignore[misc]
    """Is the last callback of each execution of a trial.

    Args:
        run: The trial's run.
        execution: Which of the trial's executions this one is, from 0; only the first reports its
            epochs to the oracle, which compares trials by like epochs.
    """

    # It reads what Keras has turned into floats already; other threads may do that.
    async_safe = True

    def __init__(self, run: TrialRun, execution: int) -> None:
        super().__init__()
        self._run = run
        self._execution = execution
        self._epoch: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes how many epochs are planned, and calls the tuner's method as KerasTuner does."""
        if self._epoch is None:
            planned = self.params.get("epochs", epoch + 1) - epoch
            self._run.record.planned_epochs = (self._run.record.planned_epochs or 0) + planned
        self._epoch = epoch
        self._run.engine.on_epoch_begin(self._run.trial, self.model, epoch, logs=logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Ends the trial when its loss is no number any more: all weights are lost by then."""
        loss = (logs or {}).get("loss")
        if loss is not None and not rules.is_hopeful(float(loss)):
            self._run.end("diverged", f"loss was {float(loss)} in epoch {(self._epoch or 0) + 1}.")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reports the epoch, and ends the trial where its objective or its oracle says so."""
        run = self._run
        run.record.epochs += 1
        run.engine.on_epoch_end(run.trial, self.model, epoch, logs=logs)
        metrics = measured(logs or {})
        objective = run.objective
        if not objective.has_value(metrics):
            if run.is_logged and run.epochs_reported == 0 and run.ending[0] == "finished":
                _require_objective(objective, metrics, epoch)
            run.weights.offer(self.model, None)
            return
        value = float(objective.get_value(metrics))
        if not rules.is_hopeful(value):
            run.end("diverged", f"{objective.name} was {value} in epoch {epoch + 1}.")
        if run.ending[0] == "diverged":
            return
        run.weights.offer(self.model, value)
        if self._execution == 0:
            reported = {**metrics, objective.name: value}
            if not run.report_epoch(epoch, reported):
                reason = f"{objective.name} was {value:.6g} after epoch {epoch + 1}."
                run.end("pruned", reason)


def measured(logs: dict[str, Any]) -> dict[str, float]:
    """Returns the numbers among the logs of an epoch, without rates that nobody could measure.

    Example:

    >>> measured({"loss": 1, "samples_per_second": float("nan"), "note": "x"})
    {'loss': 1.0}
    """
    numbers = {}
    for name, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if not (name in rules.THROUGHPUT_OBJECTIVES and math.isnan(number)):
            numbers[name] = number
    return numbers


def objective_names(objective: Any) -> list[str]:
    """Returns the names of all that a search optimises."""
    if isinstance(objective, MultiObjective):
        return list(objective.name_to_direction)
    return [objective.name]


def logged_names(
    model: keras.Model, callbacks: Iterable[keras.callbacks.Callback], has_validation: bool
) -> set[str] | None:
    """Returns what each epoch of a built model will log, or `None` where user code has a say.

    Args:
        model: A model whose metrics are built.
        callbacks: Those of the user, and Keras's own.
        has_validation: Whether it is validated.
    """
    own = (keras.Model.train_step, keras.Model.test_step, keras.Model.compute_metrics)
    theirs = (type(model).train_step, type(model).test_step, type(model).compute_metrics)
    if own != theirs or any(map(_may_log, callbacks)):
        return None
    names = set(model.get_metrics_result())
    if has_validation:
        names |= {f"val_{name}" for name in names}
    return names | set(rules.THROUGHPUT_OBJECTIVES)


def _may_log(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback is the user's own, which may add to the logs."""
    return type(callback).__module__.split(".")[0] not in ("keras", "keras_tpu_kit", "tensorboard")


def _require_objective(objective: Any, metrics: dict[str, float], epoch: int) -> None:
    """Raises where the objective is missing and waiting for it would not help."""
    has_validation = any(name.startswith("val_") for name in metrics)
    later = set(rules.THROUGHPUT_OBJECTIVES)
    names = [
        name
        for name in objective_names(objective)
        if name not in later and (has_validation or not name.startswith("val_"))
    ]
    finding = rules.check_objective(names, [*metrics, *later], has_validation)
    refuse(SearchError, finding)
