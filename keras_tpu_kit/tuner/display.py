"""Shows a search while it runs: a live table, lines of text, lines of JSON, or nothing."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

from rich.console import Console
from rich.live import Live

from keras_tpu_kit import report
from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.tuner import live
from keras_tpu_kit.tuner.internals import TrialStatus, trials_in_all
from keras_tpu_kit.tuner.record import reason_of
from keras_tpu_kit.tuner.results import ranked, result_of, table

Log = Literal["auto", "live", "text", "json", "quiet"]


class Display:
    """Stands in for KerasTuner's display in an oracle, and hears of all workers' trials.

    Args:
        oracle: The search's own oracle, never a client of one.
        log: `"live"` for a table that is drawn anew, `"text"` for a line for each trial and a
            table at the end, `"json"` for a line of JSON for each event, `"quiet"` for nothing;
            `"auto"` is `"live"` on a terminal and `"text"` elsewhere.
        clock: Returns seconds.

    Raises:
        SearchError: If `log` is none of these.
    """

    def __init__(
        self, oracle: Any, log: str = "auto", clock: Callable[[], float] = time.time
    ) -> None:
        _require_log(log)
        self.oracle = oracle
        self.log = log
        self.planned_epochs = 1
        self.running: dict[str, live.Running] = {}
        self._kerastuner = oracle._display
        self._clock = clock
        self._view: Callable[[dict[str, Any]], None] = _nothing
        self._live: Live | None = None
        self._verbose: Any = 1

    # --- What KerasTuner calls ---------------------------------------------------------------

    @property
    def verbose(self) -> Any:
        """As passed to `search`; `0` shows nothing."""
        return self._verbose

    @verbose.setter
    def verbose(self, value: Any) -> None:
        self._verbose = value

    def get_state(self) -> dict[str, Any]:
        """Returns what KerasTuner keeps of its display in the project's files."""
        state: dict[str, Any] = self._kerastuner.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._kerastuner.set_state(state)

    def on_trial_begin(self, trial: Any) -> None:
        """Is called by the oracle that hands out a trial."""
        planned = trial.hyperparameters.values.get("tuner/epochs", self.planned_epochs)
        first = trial.hyperparameters.values.get("tuner/initial_epoch", 0)
        self.running[trial.trial_id] = live.Running(trial, planned - first, self._clock())
        self._tell("trial_begin", trial, hyperparameters=dict(trial.hyperparameters.values))

    def on_epoch_end(self, trial: Any, epoch: int) -> None:
        """Is called by the oracle to which an epoch was reported."""
        if trial.trial_id in self.running:
            self.running[trial.trial_id].epochs += 1
        metrics = {
            name: history.get_last_value() for name, history in trial.metrics.metrics.items()
        }
        self._tell("epoch", trial, epoch=epoch + 1, metrics=metrics)

    def on_trial_end(self, trial: Any) -> None:
        """Is called by the oracle that was told the end of a trial."""
        self.running.pop(trial.trial_id, None)
        if trial.status == TrialStatus.INVALID:
            self._tell("trial_retry", trial, reason=reason_of(trial))
        else:
            self._tell("trial_end", trial, **result_of(trial, self.oracle.objective))

    # --- What the tuner calls ----------------------------------------------------------------

    @contextlib.contextmanager
    def shown(self, planned_epochs: int) -> Iterator[None]:
        """Shows the search while the block runs, and leaves its last picture standing.

        Args:
            planned_epochs: Epochs of a trial whose algorithm does not say another number.
        """
        self.planned_epochs = planned_epochs
        log = "quiet" if self.is_quiet else self.log
        if log == "auto":
            log = "live" if Console().is_terminal else "text"
        if log == "live":
            self._live = Live(get_renderable=self._picture, refresh_per_second=4)
            self._live.start()
        self._view = {"text": self._write_text, "json": _write_json}.get(log, _nothing)
        self._begun = self._clock()
        self._tell("search_begin", trials_in_all=trials_in_all(self.oracle))
        try:
            yield
        finally:
            self._tell(
                "search_end",
                trials=len(self.oracle.end_order),
                proposal_seconds=self.oracle.proposal_seconds,
            )
            if self._live is not None:
                self._live.stop()
                self._live = None
            elif log == "text" and self.oracle.end_order:
                report.show(self._table())
            self._view = _nothing

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is shown."""
        return self.log == "quiet" or (self.log == "auto" and self._verbose == 0)

    def tell(self, finding: Finding) -> None:
        """Says what is worth knowing of the whole search, but to nobody who reads JSON."""
        if not self.is_quiet and self.log != "json":
            report.show(finding)

    def _tell(self, event: str, trial: Any = None, **facts: Any) -> None:
        named = {} if trial is None else {"trial_id": trial.trial_id}
        self._view({"event": event, "time": self._clock(), **named, **facts})

    def _picture(self) -> Any:
        return live.picture(self.oracle, list(self.running.values()), self._clock())

    def _table(self) -> Any:
        ended = [self.oracle.trials[trial_id] for trial_id in self.oracle.end_order]
        objective = self.oracle.objective
        return table(ranked(ended, objective), objective, None, self.oracle.proposal_seconds)

    def _write_text(self, event: dict[str, Any]) -> None:
        if event["event"] == "trial_end":
            sys.stdout.write(live.line(event, self.oracle, self._clock() - self._begun) + "\n")
            sys.stdout.flush()


def _write_json(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _nothing(event: dict[str, Any]) -> None:
    """Shows nothing."""


def _require_log(log: str) -> None:
    if log not in get_args(Log):
        raise SearchError(
            Finding(
                "unknown-log",
                "error",
                what=f"log={log!r} is not known.",
                why="It says how a search shows itself while it runs.",
                fix=f"Use one of {', '.join(map(repr, get_args(Log)))}.",
                cures=tuple({"log": each} for each in get_args(Log)),
            )
        )
