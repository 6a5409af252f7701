"""Rates of one and of several replicas, as speed-up, efficiency and a verdict."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from keras_tpu_kit.throughput import INPUT_BOUND, PUBLISHED_SPEEDUP

Mode = Literal["weak", "strong"]
Verdict = Literal["scales", "input", "batch too small", "reduction", "processors"]

# Under this efficiency something is worth looking for. Source: published ResNet-50 runs keep
# 0.90 (512 GPUs) to 0.99 (8 GPUs).
GOOD_EFFICIENCY = 0.90


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One training of one count.

    Args:
        count: Replicas, or workers.
        mode: `"weak"` keeps the rows per replica, `"strong"` the rows per step.
        global_batch_size: Rows of one step over all replicas.
        samples_per_second: Over all replicas, compilation left out.
        input_wait_share: Share of the time that waited for input, or `None`.
        processors: Processors that the training was given.
    """

    count: int
    mode: Mode
    global_batch_size: int
    samples_per_second: float
    input_wait_share: float | None = None
    processors: int | None = None


@dataclasses.dataclass(frozen=True)
class Scaling:
    """All trainings of a series; each figure is a median over its rounds.

    Args:
        measured: Rounds in order; every mode that was measured has a count of 1 of its own.

    Example:

    >>> rounds = [Measured(count=n, mode="weak", global_batch_size=64 * n,
    ...                    samples_per_second=rate) for n, rate in ((1, 100.0), (2, 190.0))]
    >>> scaling = Scaling(tuple(rounds))
    >>> scaling.speedup(2, "weak"), scaling.efficiency(2, "weak")
    (1.9, 0.95)
    """

    measured: tuple[Measured, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """The counts that were measured, ascending."""
        return tuple(sorted({each.count for each in self.measured}))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that were measured."""
        found = {each.mode for each in self.measured if each.count > 1}
        modes: tuple[Mode, ...] = ("weak", "strong")
        return tuple(mode for mode in modes if mode in found)

    def of(self, count: int, mode: Mode) -> tuple[Measured, ...]:
        """Returns the rounds of one count in one mode."""
        return tuple(each for each in self.measured if each.count == count and each.mode == mode)

    def rates(self, count: int, mode: Mode) -> tuple[float, ...]:
        """Returns samples per second in each round."""
        return tuple(each.samples_per_second for each in self.of(count, mode))

    def rate(self, count: int, mode: Mode) -> float:
        """Returns the median samples per second."""
        return statistics.median(self.rates(count, mode))

    def speedup(self, count: int, mode: Mode) -> float:
        """Returns the rate over that of one: the median of the ratios of each round.

        Rounds are compared with their own round, so that a machine whose speed drifts does not
        pretend to scale.
        """
        pairs = zip(self.rates(count, mode), self.rates(1, mode), strict=True)
        return statistics.median(several / one for several, one in pairs)

    def efficiency(self, count: int, mode: Mode) -> float:
        """Returns the speed-up over the count, 1.0 being perfect."""
        return self.speedup(count, mode) / count

    def input_wait_share(self, count: int, mode: Mode) -> float | None:
        """Returns the median share of the time that waited for input, or `None`."""
        shares = [each.input_wait_share for each in self.of(count, mode)]
        known = [share for share in shares if share is not None]
        return statistics.median(known) if known else None

    def verdict(self, count: int, mode: Mode) -> Verdict:
        """Returns what holds this count back, the likeliest cause first.

        Example:

        >>> slow = [Measured(count=n, mode="strong", global_batch_size=64,
        ...                  samples_per_second=100.0, processors=2) for n in (1, 2)]
        >>> Scaling(tuple(slow)).verdict(2, "strong")
        'batch too small'
        """
        if self.efficiency(count, mode) >= GOOD_EFFICIENCY:
            return "scales"
        if (self.input_wait_share(count, mode) or 0.0) > INPUT_BOUND:
            return "input"
        given = [each.processors for each in self.of(count, mode) if each.processors is not None]
        if given and min(given) < count:
            return "processors"
        # With as many rows on each replica as on one device, a step costs as much there; what
        # is left is the sum of the gradients. With fewer rows the step's fixed cost weighs more.
        if mode == "strong":
            return "batch too small"
        return "reduction"

    def to_dict(self) -> dict[str, Any]:
        """Returns all figures as a dict of JSON types."""
        return {
            "measured": [dataclasses.asdict(each) for each in self.measured],
            "series": [
                {
                    "mode": mode,
                    "count": count,
                    "samples_per_second": self.rate(count, mode),
                    "speedup": self.speedup(count, mode),
                    "efficiency": self.efficiency(count, mode),
                    "published_speedup": PUBLISHED_SPEEDUP.get(count),
                    "verdict": self.verdict(count, mode),
                }
                for mode, count in self._cells()
            ],
        }

    def rows(self) -> list[Sequence[str]]:
        """Returns one row of text for each mode and count, to be put in a table."""
        return [self._row(mode, count) for mode, count in self._cells()]

    def _cells(self) -> Iterable[tuple[Mode, int]]:
        return ((mode, count) for mode in self.modes for count in self.counts)

    def _row(self, mode: Mode, count: int) -> Sequence[str]:
        rates = self.rates(count, mode)
        published = PUBLISHED_SPEEDUP.get(count)
        return (
            f"{mode} x{count}",
            f"{self.of(count, mode)[0].global_batch_size:,}",
            f"{self.rate(count, mode):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{self.speedup(count, mode):.2f}x",
            f"{published:.1f}x" if published else "",
            f"{self.efficiency(count, mode):.0%}",
            "" if count == 1 else _WORDS[self.verdict(count, mode)],
        )


HEADER = (
    "",
    "rows/step",
    "samples/s",
    "range",
    "speed-up",
    "published",
    "efficiency",
    "what holds it back",
)
_WORDS: dict[Verdict, str] = {
    "scales": "nothing: it scales",
    "input": "input: waits for data",
    "batch too small": "batch too small: fixed costs weigh",
    "reduction": "reduction: summing gradients",
    "processors": "processors: they are shared",
}
