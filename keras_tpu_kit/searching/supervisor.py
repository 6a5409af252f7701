"""Starts a search's processes on one machine, replaces those that die, and ends them together."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures

from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.processes import (
    EXIT_RESUMABLE,
    Command,
    ProcessGroup,
    answers,
    describe_exit,
)
from keras_tpu_kit.searching.environment import EXIT_NO_CHIEF, EXIT_RETIRED, ServiceSettings
from keras_tpu_kit.searching.messages import tell_once

PARENT_VARIABLE = "KERAS_TPU_KIT_PARENT"

_POLL_SECONDS = 0.1
# A process that lived so long got somewhere; its death starts a new count.
_LONG_LIFE_SECONDS = 60.0
_MAX_SHORT_LIVES = 5
# Workers are told of the end within two questions; what still runs then is in no trial.
_END_GRACE_SECONDS = 2.0
_STOP_GRACE_SECONDS = 10.0
# Workers have nothing to save.
_KILL_SECONDS = 0.5


@dataclasses.dataclass
class _Child:
    """One of the processes, in its present incarnation."""

    settings: ServiceSettings
    extra: Mapping[str, str]
    group: ProcessGroup | None = None
    started: float = 0.0
    short_lives: int = 0
    is_mourned: bool = False

    @property
    def name(self) -> str:
        return self.settings.tuner_id

    @property
    def exit_code(self) -> int | None:
        return None if self.group is None else self.group.exit_codes()[0]


class SearchSupervisor:
    """Runs a chief and workers until the search is over.

    Args:
        argv: The program that becomes a chief or a worker by its environment.
        chief: Settings of the chief; `None` where it runs on another machine.
        workers: Settings of each worker.
        shares: For each worker the variables that keep it to its part of the machine.
        write: Receives each line of output, marked with the process's name.
        start: Starts a process, by default as a program of its own.
    """

    def __init__(
        self,
        argv: Sequence[str],
        chief: ServiceSettings | None,
        workers: Sequence[ServiceSettings],
        shares: Sequence[Mapping[str, str]],
        write: Callable[[str], None],
        start: Callable[[Command], ProcessGroup] | None = None,
    ) -> None:
        self._argv = list(argv)
        self._chief = _Child(chief, {}) if chief is not None else None
        self._workers = [
            _Child(settings, share) for settings, share in zip(workers, shares, strict=True)
        ]
        self._write = write
        self._start_process = start or self._start_program
        self._signal: int | None = None

    def run(self) -> int:
        """Runs the search and returns its exit code.

        The code is 0 when the search is over, 75 when it was stopped by SIGTERM and can be
        resumed, 130 when Ctrl-C did, and otherwise that of the process that ended it.

        Raises:
            SearchError: `search-process-dies`, if a process dies again and again at its start.
        """
        with self._watching_signals():
            try:
                return self._run()
            finally:
                self._stop_all()

    def pids(self) -> dict[str, int]:
        """Returns the process ids of the children that run now, by name."""
        return {
            child.name: child.group.pids[0]
            for child in self._children()
            if child.group is not None and child.exit_code is None
        }

    def _run(self) -> int:
        if self._chief is not None:
            self._start(self._chief)
        while True:
            if self._signal is not None:
                name = signal.Signals(self._signal).name
                self._write(
                    f"[search] {name}: the search stops. Every finished trial is kept, and the "
                    "same command goes on from there."
                )
                return EXIT_RESUMABLE if self._signal == signal.SIGTERM else 128 + self._signal
            code = self._look_after_chief()
            if code is not None:
                return code
            code = self._look_after_workers()
            if code is not None:
                return code
            time.sleep(_POLL_SECONDS)

    @property
    def _lost_chief(self) -> tuple[int, ...]:
        """The code of a worker that is to be started again once this machine's chief answers."""
        return () if self._chief is None else (EXIT_NO_CHIEF,)

    def _children(self) -> list[_Child]:
        return [*([self._chief] if self._chief is not None else []), *self._workers]

    # --- The chief -----------------------------------------------------------------------------

    def _look_after_chief(self) -> int | None:
        """Restarts a chief that was killed; returns the search's exit code once it is over."""
        chief = self._chief
        code = None if chief is None else chief.exit_code
        if chief is None or code is None:
            return None
        if code == 0:
            self._await_workers()
        if code < 128:
            return code
        self._write(f"[search] {chief.name} {describe_exit(code)}; it is started again.")
        alive = any(worker.group is not None for worker in self._workers)
        chief.settings = dataclasses.replace(chief.settings, workers_alive=alive)
        self._start(chief)
        return None

    def _chief_answers(self) -> bool:
        """Whether workers may be started; a chief elsewhere they await themselves."""
        if self._chief is None:
            return True
        settings = self._chief.settings
        host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
        return self._chief.exit_code is None and answers(host, settings.port, timeout=0.5)

    # --- Workers -------------------------------------------------------------------------------

    def _look_after_workers(self) -> int | None:
        """Starts and replaces workers; returns an exit code where one ended the search."""
        waiting = []
        for worker in self._workers:
            code = worker.exit_code
            if worker.group is None or code in (EXIT_RETIRED, *self._lost_chief):
                waiting.append(worker)
            elif code is None or code == 0:
                continue
            elif code < 128:
                # A machine that cannot reach the chief is no reason to end the search of the rest.
                if code != EXIT_NO_CHIEF:
                    error = f"{worker.name} {describe_exit(code)}; its output says why."
                    tell_once(worker.settings, {"kind": "failed", "error": error})
                return code
            else:
                if not worker.is_mourned:
                    self._write(f"[search] {worker.name} {describe_exit(code)}.")
                    tell_once(worker.settings, {"kind": "died", "tuner_id": worker.name})
                    worker.is_mourned = True
                waiting.append(worker)
        if waiting and self._chief_answers():
            for worker in waiting:
                self._start(worker)
        if self._chief is None and all(worker.exit_code == 0 for worker in self._workers):
            return 0
        return None

    def _await_workers(self) -> None:
        """Gives workers the moment in which they learn that the search is over."""
        deadline = time.monotonic() + _END_GRACE_SECONDS
        while time.monotonic() < deadline and any(
            worker.group is not None and worker.exit_code is None for worker in self._workers
        ):
            time.sleep(_POLL_SECONDS)

    # --- Any process ---------------------------------------------------------------------------

    def _start(self, child: _Child) -> None:
        """Starts a process in place of the one that ended, unless that happens too often.

        Raises:
            SearchError: `search-process-dies`.
        """
        code, now = child.exit_code, time.monotonic()
        if code is not None and code >= 128:
            is_short = now - child.started < _LONG_LIFE_SECONDS
            child.short_lives = child.short_lives + 1 if is_short else 1
            if child.short_lives >= _MAX_SHORT_LIVES:
                raise SearchError(_dies_again(child.name, code))
        if child.group is not None:
            child.group.stop(grace=0)
        variables = {
            **child.settings.to_environment(),
            **child.extra,
            PARENT_VARIABLE: str(os.getpid()),
        }
        child.group = self._start_process(Command(self._argv, child.name, variables))
        child.started, child.is_mourned = now, False

    def _start_program(self, command: Command) -> ProcessGroup:
        return ProcessGroup([command], write=self._write, grace=_STOP_GRACE_SECONDS)

    def _stop_all(self) -> None:
        """Ends the workers, then the chief, which notes that it was stopped and not killed."""
        running = [w for w in self._workers if w.group is not None and w.exit_code is None]
        if running:
            with futures.ThreadPoolExecutor(len(running)) as pool:
                # Together, so that many workers take no longer than one.
                list(pool.map(lambda worker: worker.group.stop(grace=_KILL_SECONDS), running))
        for worker in self._workers:
            if worker.group is not None:
                worker.group.stop(grace=0)
        if self._chief is not None and self._chief.group is not None:
            self._chief.group.stop()
        elif self._chief is None:
            for worker in running:
                told = {"kind": "stopped", "tuner_id": worker.name}
                if not tell_once(worker.settings, told, timeout=1.0):
                    break

    @contextlib.contextmanager
    def _watching_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, frame: types.FrameType | None) -> None:
            self._signal = number

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def end_with_parent(variables: Mapping[str, str] = os.environ) -> None:
    """Ends this process when the one that watches it is gone, so that none is left behind.

    Args:
        variables: The environment that the supervisor gave it.
    """
    parent = variables.get(PARENT_VARIABLE)
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == int(parent):
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()


def _dies_again(name: str, code: int) -> Finding:
    return Finding(
        "search-process-dies",
        "error",
        f"{name} {describe_exit(code)} {_MAX_SHORT_LIVES} times in a row, each time within "
        f"{_LONG_LIFE_SECONDS:.0f} seconds of its start.",
        "What kills a process at its start kills its successor as well.",
        "Read the lines before, and look for memory limits (`dmesg`, `ulimit -v`, the job's own).",
    )
