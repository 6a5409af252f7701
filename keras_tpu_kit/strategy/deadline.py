"""Waits that end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Deadline:
    """A moment after which nothing is waited for any longer.

    Args:
        seconds: From now.
        clock: Seconds of a clock that never goes back.
        sleep: Waits some seconds.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._end = clock() + seconds
        self.seconds = seconds

    @property
    def left(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - self._clock())

    def retry(self, attempt: Callable[[float], T | None], pause: float = 1.0) -> T | None:
        """Returns the first result of an attempt that is not `None`, or `None` at the deadline.

        Args:
            attempt: Receives the seconds left; is called at least once.
            pause: Seconds between attempts.
        """
        while True:
            result = attempt(self.left)
            if result is not None or self.left <= pause:
                return result
            self._sleep(pause)

    def within(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns, or raises what it raises, if it ends in time.

        It runs in a thread of its own that is left behind if it does not end. That helps
        against work that waits without holding Python's lock, such as a request or an operation
        of TensorFlow; against other work only a process of its own does.

        Raises:
            TimeoutError: If the deadline comes first.
        """
        results: list[T] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                results.append(work())
            except Exception as error:  # noqa: BLE001 - handed to the caller's thread
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.left)
        if errors:
            raise errors[0]
        if not results:
            raise TimeoutError(f"It took longer than {self.seconds:g} s.")
        return results[0]
