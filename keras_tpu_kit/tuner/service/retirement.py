"""When a worker is to be replaced by a new process, so that memory stays bounded."""

from __future__ import annotations

import os
import pathlib

# Trials after which a process's memory is what it needs, its libraries and caches included.
_WARM_UP_TRIALS = 2


class Retirement:
    """Says when a worker has trained enough trials, or grown too much.

    Args:
        max_trials: Trials after which it is due, 0 for any number.
        max_growth_mb: Megabytes beyond its size after two trials, 0 for any number.
    """

    def __init__(self, max_trials: int, max_growth_mb: int) -> None:
        self._max_trials = max_trials
        self._max_growth = max_growth_mb
        self._trials = 0
        self._warm_size: float | None = None
        self.has_retired = False

    def count_trial(self) -> None:
        """Is called when a trial begins."""
        self._trials += 1

    def is_due(self) -> bool:
        """Whether the worker is to be replaced before it begins another trial."""
        size = resident_megabytes()
        if self._warm_size is None and self._trials >= _WARM_UP_TRIALS:
            self._warm_size = size
        has_grown = (
            self._max_growth > 0
            and self._warm_size is not None
            and size - self._warm_size > self._max_growth
        )
        is_done = 0 < self._max_trials <= self._trials
        self.has_retired = self._trials > 0 and (has_grown or is_done)
        return self.has_retired


def resident_megabytes(pid: int | None = None) -> float:
    """Returns the resident memory of a process; 0 where the system does not tell.

    Args:
        pid: The process, by default this one.
    """
    path = pathlib.Path("/proc", str(pid or "self"), "statm")
    if not path.exists():
        return 0.0
    pages = int(path.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
