"""Makes all workers stop before the same step, whichever of them was told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Asking the other workers costs about a millisecond, and a preempted machine has some seconds.
SECONDS_BETWEEN = 1.0


def next_wait(seconds: float, calls: int, between: float = SECONDS_BETWEEN) -> int:
    """Returns how many calls to let pass until the next one asks the others.

    Args:
        seconds: What the last `calls` calls took, on average over the workers.
        calls: Calls since the others were asked.
        between: Seconds that may pass until they are asked again.

    Example:

    >>> next_wait(0.5, calls=100), next_wait(8.0, calls=2)
    (200, 1)
    """
    return max(1, min(100_000, int(between * calls / max(seconds, 1e-9))))


class Agreement:
    """Tells all workers the same answer to "was any of us asked to stop?".

    Each worker calls `stops` at the same points of its training. Only at every n-th call do
    they ask each other, by a mean over all workers that carries the time along from which n
    follows, so that it is the same n for all of them.

    Args:
        strategy: The strategy that trains.
        num_workers: Its workers; one asks nobody.
        clock: Returns seconds.
    """

    def __init__(
        self, strategy: Any, num_workers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._strategy = strategy
        self._num_workers = num_workers
        self._clock = clock
        self._wait = self._calls = 0
        self._asked_at = clock()
        self._function: Any = None

    def stops(self, asked: bool, *, at_once: bool = False) -> bool:
        """Returns whether training stops here, the same on all workers.

        Args:
            asked: Whether this worker was asked to stop.
            at_once: Whether to ask the others now, as at the end, where nobody asks again.
        """
        if self._num_workers == 1:
            return asked
        self._calls += 1
        if self._calls < self._wait and not at_once:
            return False
        now = self._clock()
        mine = tf.constant([float(asked), now - self._asked_at], "float64")
        share_asked, seconds = self._mean(mine).numpy()
        self._wait = next_wait(float(seconds), self._calls)
        self._calls, self._asked_at = 0, now
        return bool(share_asked > 0)

    def _mean(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the mean of a value over all replicas of all workers."""
        if self._function is None:
            strategy = self._strategy

            @tf.function  # type: ignore[untyped-decorator]
            def run(given: tf.Tensor) -> tf.Tensor:
                per_replica = strategy.run(lambda: tf.identity(given))
                total = strategy.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)
                return total / strategy.num_replicas_in_sync

            self._function = run
        return self._function(value)
