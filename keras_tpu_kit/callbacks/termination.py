"""Hears SIGTERM while a model's `fit` runs, and only then."""

from __future__ import annotations

import signal
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

import keras

from keras_tpu_kit.errors import Finding, KitError


class Termination:
    """Remembers that SIGTERM came, until it is released.

    Args:
        model: The model whose training shall hear of it.

    Raises:
        KitError: Outside of the main thread, where no signal comes.
    """

    def __init__(self, model: keras.Model) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise KitError(_no_signals_here())
        release_forgotten()
        self.was_asked = False
        # Each `fit` makes a list of its own, so that a later one of this model is told apart.
        lists = (
            each.get("callbacks") for each in _fits(sys._getframe()) if each.get("self") is model
        )
        self._callbacks = weakref.ref(next(lists, self))  # Outside of `fit` no list is this one.
        self._earlier: Any = signal.signal(signal.SIGTERM, self._note)

    def release(self) -> None:
        """Gives the signal back to whom it went before."""
        signal.signal(signal.SIGTERM, self._earlier)

    @property
    def is_forgotten(self) -> bool:
        """Whether the training has ended without releasing: no callback hears that it failed."""
        return not self._is_in_fit(sys._getframe())

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_in_fit(frame):
            self.was_asked = True
            return
        # A training that failed could not release; the signal goes where it would have gone.
        self.release()
        signal.raise_signal(number)

    def _is_in_fit(self, frame: FrameType | None) -> bool:
        """Returns whether the `fit` that this one listens for is among the callers of a frame."""
        callbacks = self._callbacks()
        return callbacks is not None and any(
            each.get("callbacks") is callbacks for each in _fits(frame)
        )


def release_forgotten() -> None:
    """Gives SIGTERM back where a training that failed could not, in the main thread.

    Whoever is about to set a handler of its own calls this first, or it would take a dead
    training for somebody who listens.
    """
    while True:
        owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        if not isinstance(owner, Termination) or not owner.is_forgotten:
            return
        owner.release()


def _fits(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    """Yields the variables of each `fit` among the callers of a frame, the innermost first."""
    while frame is not None:
        if frame.f_code.co_name == "fit":
            yield frame.f_locals
        frame = frame.f_back


def _no_signals_here() -> Finding:
    return Finding(
        "preemption-in-thread",
        "error",
        what="StopOnPreemption is used in a thread that is not the main one.",
        why="Python delivers signals to the main thread, so SIGTERM would end the process "
        "without saving.",
        fix="Call fit in the main thread, or leave StopOnPreemption out.",
    )
