"""Shows a search while it runs."""

from __future__ import annotations

from typing import Any


class Display:
    """Stands in for KerasTuner's display, whose state it keeps."""

    def __init__(self, oracle: Any, log: str = "auto") -> None:
        self._kerastuner = oracle._display
        self.verbose = 1

    def get_state(self) -> dict[str, Any]:
        """Returns what KerasTuner keeps of its display in the project's files."""
        state: dict[str, Any] = self._kerastuner.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` returned."""
        self._kerastuner.set_state(state)

    def on_trial_begin(self, trial: Any) -> None:
        """Is called by the oracle that hands out a trial."""

    def on_epoch_end(self, trial: Any, epoch: int) -> None:
        """Is called by the oracle to which an epoch was reported."""

    def on_trial_end(self, trial: Any) -> None:
        """Is called by the oracle that was told the end of a trial."""
