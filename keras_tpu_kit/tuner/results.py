"""What a search came to, as values and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from keras_tpu_kit.report import PrintedTable
from keras_tpu_kit.tuner.internals import TrialStatus
from keras_tpu_kit.tuner.record import TrialRecord


def result_of(trial: Any, objective: Any) -> dict[str, Any]:
    """Returns what one trial came to, as JSON types.

    Args:
        trial: A `keras_tuner` trial.
        objective: The search's `keras_tuner.Objective`.
    """
    record = TrialRecord.from_message(trial.message)
    outcome = record.outcome if record else trial.status.lower()
    at_best = {name: history.get_history() for name, history in trial.metrics.metrics.items()}
    facts = record or TrialRecord()
    return {
        "trial_id": trial.trial_id,
        "outcome": outcome,
        "reason": record.reason if record else (trial.message or ""),
        "objective": objective.name,
        "score": float(trial.score) if trial.status == TrialStatus.COMPLETED else None,
        "best_epoch": trial.best_step + 1 if trial.score is not None else None,
        "hyperparameters": dict(trial.hyperparameters.values),
        "metrics": {
            name: _value_at(observations, trial.best_step)
            for name, observations in at_best.items()
            if observations
        },
        "seconds": facts.seconds,
        "began": facts.began,
        "epochs": facts.epochs,
        "planned_epochs": facts.planned_epochs,
        "num_replicas": facts.num_replicas,
        "per_replica_batch_size": facts.per_replica_batch_size,
        "num_weights": facts.num_weights,
        "device_seconds": facts.device_seconds,
        "device_seconds_saved": facts.device_seconds_saved,
    }


def ranked(trials: Iterable[Any], objective: Any) -> list[dict[str, Any]]:
    """Returns what all trials came to, the best first, those without a value last.

    Args:
        trials: `keras_tuner` trials.
        objective: The search's `keras_tuner.Objective`.
    """
    sign = -1.0 if objective.direction == "max" else 1.0
    results = [result_of(trial, objective) for trial in trials]
    return sorted(
        results,
        key=lambda one: (one["score"] is None, sign * (one["score"] or 0.0), one["trial_id"]),
    )


def table(
    results: Sequence[dict[str, Any]],
    objective: Any,
    most: int | None = None,
    proposal_seconds: float = 0.0,
) -> Table:
    """Returns a table of results, with what pruning saved below it.

    Args:
        results: What `ranked` returns.
        objective: The search's `keras_tuner.Objective`.
        most: Rows to show, or `None` for all.
        proposal_seconds: Seconds that the algorithm took to choose values, told from a tenth on.
    """
    chosen = f" Choosing values took {proposal_seconds:.1f} s." if proposal_seconds >= 0.1 else ""
    drawn = PrintedTable(
        title="Trials",
        title_justify="left",
        title_style="bold",
        caption=summary(results) + chosen,
        caption_justify="left",
    )
    for name in ("trial", objective.name, "best at", "epochs", "time", "samples/s", "batch"):
        drawn.add_column(name, justify="left" if name == "trial" else "right", no_wrap=True)
    drawn.add_column("outcome", overflow="fold")
    drawn.add_column("values", overflow="fold")
    for each in results if most is None else results[:most]:
        drawn.add_row(*_row(each))
    return drawn


def summary(results: Sequence[dict[str, Any]]) -> str:
    """Returns how trials ended, and the hours of devices that pruning saved, in a sentence.

    Example:

    >>> summary([{"outcome": "finished", "device_seconds": 60.0, "device_seconds_saved": 0.0},
    ...          {"outcome": "pruned", "device_seconds": 60.0, "device_seconds_saved": 90.0}])
    '1 finished, 1 pruned; 0.033 device-hours, 0.025 saved by pruning.'
    """
    counts = Counter(each["outcome"] for each in results)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    spent = sum(each["device_seconds"] for each in results) / 3600
    saved = sum(each["device_seconds_saved"] for each in results) / 3600
    pruned = f", {saved:.2g} saved by pruning" if saved else ""
    return f"{told or 'no trial has ended'}; {spent:.2g} device-hours{pruned}."


def values_of(hyperparameters: Mapping[str, Any]) -> str:
    """Returns hyperparameters as text, without those that are Hyperband's own.

    Example:

    >>> values_of({"lr": 0.01, "units": 8, "tuner/epochs": 2})
    'lr=0.01, units=8'
    """
    own = {name: value for name, value in hyperparameters.items() if not name.startswith("tuner/")}
    return ", ".join(f"{name}={figure(value)}" for name, value in own.items())


def _row(result: dict[str, Any]) -> tuple[str, ...]:
    rate = result["metrics"].get("samples_per_second")
    planned = result["planned_epochs"]
    return (
        result["trial_id"],
        figure(result["score"]),
        figure(result["best_epoch"]),
        f"{result['epochs']}/{planned}" if planned else str(result["epochs"]),
        f"{result['seconds']:.1f} s",
        "" if rate is None else f"{rate:,.0f}",
        figure(result["per_replica_batch_size"]),
        result["outcome"] + (f": {result['reason']}" if result["reason"] else ""),
        values_of(result["hyperparameters"]),
    )


def figure(value: Any) -> str:
    """Returns a value as a short text.

    Example:

    >>> figure(0.123456789), figure(12), figure(None), figure("adam")
    ('0.12346', '12', '', 'adam')
    """
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _value_at(observations: list[Any], step: int) -> float:
    """Returns a metric at the best epoch, or the last one there is."""
    at = {each.step: each for each in observations}
    return float(at.get(step, observations[-1]).mean())
