"""The picture of a search that is under way."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from keras_tpu_kit.tuner.internals import TrialStatus, trials_in_all
from keras_tpu_kit.tuner.record import TrialRecord
from keras_tpu_kit.tuner.results import figure, ranked, table, values_of

# Trials in the live table; the others are in `results_table()`.
_ROWS = 10


@dataclasses.dataclass
class Running:
    """A trial that some worker is training.

    Args:
        trial: The trial.
        planned_epochs: Epochs that it will train.
        began: Seconds on the display's clock.
        epochs: Epochs that it has reported.
    """

    trial: Any
    planned_epochs: int
    began: float
    epochs: int = 0


def picture(oracle: Any, running: list[Running], now: float) -> RenderableType:
    """Returns bars for the search and its running trials, and a table of the best trials.

    Args:
        oracle: The search's oracle.
        running: Trials under way.
        now: Seconds on the display's clock.
    """
    ended = [oracle.trials[trial_id] for trial_id in oracle.end_order]
    total = trials_in_all(oracle)
    bars = Table.grid(padding=(0, 2))
    left = seconds_left(ended, total, running, now)
    bars.add_row(
        Text("trials", style="bold"),
        ProgressBar(total=total or None, completed=len(ended), width=30, pulse=total is None),
        f"{len(ended)}/{total or '?'}",
        Text(_best(oracle)),
        "" if left is None else f"{_duration(left)} left",
    )
    for each in running:
        bars.add_row(
            f"trial {each.trial.trial_id}",
            ProgressBar(total=each.planned_epochs, completed=each.epochs, width=30),
            f"epoch {each.epochs}/{each.planned_epochs}",
            Text(values_of(each.trial.hyperparameters.values), overflow="ellipsis", no_wrap=True),
            _duration(now - each.began),
        )
    results = ranked(ended, oracle.objective)
    if not results:
        return bars
    return Group(bars, table(results, oracle.objective, _ROWS, oracle.proposal_seconds))


def line(event: dict[str, Any], oracle: Any, seconds: float) -> str:
    """Returns one line on a trial that ended.

    Args:
        event: What `result_of` returned of it.
        oracle: The search's oracle.
        seconds: Seconds since the search began.
    """
    total = trials_in_all(oracle)
    values = values_of(event["hyperparameters"])
    score = "" if event["score"] is None else f" {event['objective']}={figure(event['score'])}"
    why = f" ({event['reason'].rstrip('.')})" if event["reason"] else ""
    count = f"{len(oracle.end_order)}/{total or '?'}"
    return (
        f"[{_duration(seconds)}] trial {event['trial_id']} {event['outcome']}{why}:{score} "
        f"in {event['seconds']:.1f} s with {values} | {count} trials, {_best(oracle)}"
    )


def seconds_left(
    ended: list[Any], total: int | None, running: list[Running], now: float
) -> float | None:
    """Returns about how long the search will take yet, or `None` where nobody can know.

    Trials that ended are taken for typical of those to come, as many at once as now.

    Args:
        ended: Trials that ended.
        total: Trials in all, or `None`.
        running: Trials under way.
        now: Seconds on the display's clock.
    """
    records = [TrialRecord.from_message(trial.message) for trial in ended]
    seconds = [record.seconds for record in records if record is not None and record.seconds]
    if total is None or not seconds:
        return None
    mean = sum(seconds) / len(seconds)
    begun = sum(max(0.0, mean - (now - each.began)) for each in running)
    waiting = max(0, total - len(ended) - len(running)) * mean
    return (begun + waiting) / max(1, len(running))


def _best(oracle: Any) -> str:
    scores = [
        trial.score
        for trial in oracle.trials.values()
        if trial.status == TrialStatus.COMPLETED and trial.score is not None
    ]
    if not scores:
        return "no value yet"
    best = max(scores) if oracle.objective.direction == "max" else min(scores)
    return f"best {oracle.objective.name} {figure(float(best))}"


def _duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(max(0.0, seconds))))
