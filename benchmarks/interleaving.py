"""Times contenders turn by turn, so that a machine that slows down slows all of them."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median with its extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Returns the spread of measured values."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:,.2f} ({self.low:,.2f} to {self.high:,.2f})"


def interleaved_seconds(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_ups: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Returns the seconds that each contender took in each round.

    Args:
        contenders: What to run, by name. Every round runs all of them, each time beginning
            with the next.
        rounds: Rounds that count.
        warm_ups: Rounds before, which trace and fill caches.
        clock: Seconds that go by; `time.process_time` counts those of this process's threads.
    """
    names = list(contenders)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_ups + rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            begin = clock()
            contenders[name]()
            if turn >= warm_ups:
                seconds[name].append(clock() - begin)
    return seconds


def ratios(slow: list[float], fast: list[float]) -> Spread:
    """Returns how many times faster the second contender was, round by round."""
    return Spread.of([a / b for a, b in zip(slow, fast, strict=True)])
