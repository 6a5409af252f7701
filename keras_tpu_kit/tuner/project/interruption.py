"""Stops a search between two states that can be resumed, on the signals that ask for it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import threading
import types
from collections.abc import Iterator

from keras_tpu_kit.callbacks.termination import release_forgotten

# EX_TEMPFAIL of sysexits.h: try again later.
EXIT_RESUMABLE = 75

STOPPED_FILE = ".stopped"


class SearchStopped(SystemExit):
    """A search was asked to stop; the process ends with code 75 and can be started again."""

    def __init__(self) -> None:
        super().__init__(EXIT_RESUMABLE)


class Interruption:
    """Turns SIGTERM into `SearchStopped`, never in the middle of a change of state."""

    def __init__(self) -> None:
        self._depth = 0
        self._pending = False
        self._has_begun = False

    @contextlib.contextmanager
    def watched(self, project: str | os.PathLike[str]) -> Iterator[None]:
        """Surrounds a search; on SIGTERM, Ctrl-C or an error it notes that the search was stopped.

        The note keeps the trial that was running from being counted as one that crashes: its
        process said why it ended, be it a full disk or a mistake that is yet to be mended.

        Args:
            project: The project's directory.
        """
        main = threading.current_thread() is threading.main_thread()
        if main:
            release_forgotten()
        before = signal.getsignal(signal.SIGTERM) if main else None
        # A handler that somebody else has set knows better what to do.
        ours = main and before in (signal.SIG_DFL, None)
        if ours:
            signal.signal(signal.SIGTERM, self._stop)
        try:
            yield
        except (Exception, SystemExit, KeyboardInterrupt):
            # Before it has taken over, how the search before it ended is what counts.
            if self._has_begun:
                with contextlib.suppress(OSError):
                    (pathlib.Path(project) / STOPPED_FILE).touch()
            raise
        finally:
            self._has_begun = False
            if ours:
                signal.signal(signal.SIGTERM, before or signal.SIG_DFL)

    @contextlib.contextmanager
    def postponed(self) -> Iterator[None]:
        """Keeps SIGTERM waiting while the state changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._pending and self._depth == 0:
            self._pending = False
            raise SearchStopped

    def was_stopped(self, project: str | os.PathLike[str]) -> bool:
        """Whether the search before this one was asked to stop, rather than killed."""
        return (pathlib.Path(project) / STOPPED_FILE).exists()

    def forget(self, project: str | os.PathLike[str]) -> None:
        """Forgets that the search before this one was stopped, as this one takes over."""
        self._has_begun = True
        (pathlib.Path(project) / STOPPED_FILE).unlink(missing_ok=True)

    def _stop(self, number: int, frame: types.FrameType | None) -> None:
        if self._depth:
            self._pending = True
        else:
            raise SearchStopped
