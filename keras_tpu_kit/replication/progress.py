"""Counts what a model's train function did, without making the host wait for the device."""

from __future__ import annotations

from typing import Any


class Progress:
    """Executions, steps and seconds of waiting since the counting began.

    Reading `executions` and `steps` costs nothing. Reading `input_wait` waits for the last
    execution, so read it once an epoch.

    Example:

    >>> progress = Progress()
    >>> progress.add(steps=5, input_wait=0.25)
    >>> progress.executions, progress.steps, progress.input_wait
    (1, 5, 0.25)
    """

    def __init__(self) -> None:
        self.executions = 0
        self.steps = 0
        self._waited = 0.0
        self._pending: list[Any] = []

    def add(self, steps: int, input_wait: Any) -> None:
        """Counts one execution.

        Args:
            steps: Steps that it ran.
            input_wait: Seconds it waited for input; a number or a scalar tensor.
        """
        self.executions += 1
        self.steps += steps
        self._pending.append(input_wait)
        if len(self._pending) > 1000:
            self._settle()

    @property
    def input_wait(self) -> float:
        """Seconds that steps waited for the next batch."""
        self._settle()
        return self._waited

    def _settle(self) -> None:
        self._waited += sum(float(seconds) for seconds in self._pending)
        self._pending.clear()
