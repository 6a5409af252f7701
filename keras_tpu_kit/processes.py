"""Starts, prefixes, watches, stops and time-limits child processes.

Every wait ends: a child that does not answer SIGTERM within the grace period is killed, with
all that it has started itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO

# sysexits.h EX_TEMPFAIL: the run was stopped, has saved its state, and can be resumed.
EXIT_RESUMABLE = 75
# What coreutils' timeout(1) returns.
EXIT_TIMED_OUT = 124
_POLL_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Command:
    """A program to start.

    Args:
        argv: The program and its arguments.
        name: What its output lines are marked with: `[name] line`; nothing if empty.
        env: Variables to set in addition to this process's own.
        cwd: Folder to run in, by default this process's.
    """

    argv: Sequence[str]
    name: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cwd: str | os.PathLike[str] | None = None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a group of processes ended.

    Args:
        exit_codes: Of each process in the order of its commands, as a shell would say them:
            128 + n for signal n.
        first: Place of the process whose end ended the group, or `None` if all succeeded, the
            time was up or this process was told to stop.
        timed_out: Whether the time limit ended it.
        stopped_by: The signal that this process was sent and passed on, or `None`.
    """

    exit_codes: tuple[int, ...]
    first: int | None = None
    timed_out: bool = False
    stopped_by: int | None = None

    @property
    def exit_code(self) -> int:
        """The code for the whole group: of the process that failed first, else of the limit."""
        if self.first is not None:
            return self.exit_codes[self.first]
        if self.timed_out:
            return EXIT_TIMED_OUT
        if self.stopped_by is not None:
            if EXIT_RESUMABLE in self.exit_codes:
                return EXIT_RESUMABLE
            return 128 + self.stopped_by if any(self.exit_codes) else 0
        return 0


class ProcessGroup:
    """Child processes that live and die together; leaving the `with` block ends them all.

    Args:
        commands: What to start; each gets a session of its own, so that what it starts itself
            is stopped with it.
        write: Receives each line of output, marked with the command's name.
        grace: Seconds between asking a process to stop (SIGTERM) and killing it (SIGKILL).

    Example:

    >>> import sys
    >>> lines = []
    >>> program = [sys.executable, "-c", "print('hello')"]
    >>> with ProcessGroup([Command(program, "worker 0")], write=lines.append) as group:
    ...     outcome = group.wait(timeout=60)
    >>> outcome.exit_code, lines
    (0, ['[worker 0] hello'])
    """

    def __init__(
        self,
        commands: Sequence[Command],
        *,
        write: Callable[[str], None],
        grace: float = 10.0,
    ) -> None:
        self._grace = grace
        self._write = write
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pumps: list[threading.Thread] = []
        self._swept: set[int] = set()
        self._stop_signal: int | None = None
        try:
            for command in commands:
                self._start(command)
        except BaseException:
            self.stop(grace=0)
            raise

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids, in the order of the commands."""
        return tuple(process.pid for process in self._processes)

    def exit_codes(self) -> tuple[int | None, ...]:
        """Returns each process's exit code so far, `None` for those that still run."""
        codes = tuple(_shell_code(process.poll()) for process in self._processes)
        for process, code in zip(self._processes, codes, strict=True):
            if code is not None and process.pid not in self._swept:
                # At once, not at the end: hours later the number may be another program's.
                self._swept.add(process.pid)
                _signal_session(process, signal.SIGKILL)
        return codes

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits until all have succeeded, one has failed, the time is up or `ask_to_stop` came.

        In every case all processes have ended, and their output has been written, when it
        returns.

        Args:
            timeout: Seconds, or `None` for as long as it takes.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        first, timed_out = None, False
        while self._stop_signal is None:
            codes = self.exit_codes()
            first = next((place for place, code in enumerate(codes) if code), None)
            if first is not None or None not in codes:
                break
            if deadline is not None and time.monotonic() >= deadline:
                timed_out = True
                break
            time.sleep(_POLL_SECONDS)
        self.stop()
        ended = tuple(code if code is not None else EXIT_TIMED_OUT for code in self.exit_codes())
        return Outcome(ended, first, timed_out, self._stop_signal)

    def ask_to_stop(self, signum: int = signal.SIGTERM) -> None:
        """Makes `wait` pass a signal on to all processes, and end them after the grace period."""
        self._stop_signal = signum

    def stop(self, grace: float | None = None) -> None:
        """Ends every process: SIGTERM (or the signal asked for), the grace period, SIGKILL.

        Args:
            grace: Seconds to wait in between, by default the group's.
        """
        signum = self._stop_signal or signal.SIGTERM
        deadline = time.monotonic() + (self._grace if grace is None else grace)
        self._signal_running(signum)
        while None in self.exit_codes() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._signal_running(signal.SIGKILL)
        while None in self.exit_codes():
            time.sleep(_POLL_SECONDS)
        for pump in self._pumps:
            pump.join(timeout=5.0)

    def _signal_running(self, signum: int) -> None:
        """Sends a signal to the processes that still run, and to what they have started."""
        for process, code in zip(self._processes, self.exit_codes(), strict=True):
            if code is None:
                _signal_session(process, signum)

    def _start(self, command: Command) -> None:
        """Starts one process, and the thread that carries its output."""
        process = subprocess.Popen(
            list(command.argv),
            env={**os.environ, **command.env},
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        mark = f"[{command.name}] " if command.name else ""
        pump = threading.Thread(target=self._pump, args=(process.stdout, mark), daemon=True)
        self._pumps.append(pump)
        pump.start()

    def _pump(self, stream: IO[bytes], mark: str) -> None:
        """Writes a process's lines, each whole, as they come."""
        with stream:
            for line in stream:
                text = line.decode(errors="replace").rstrip("\r\n")
                with self._lock:
                    self._write(mark + text)


def run_group(
    commands: Sequence[Command],
    *,
    write: Callable[[str], None],
    timeout: float | None = None,
    grace: float = 10.0,
) -> Outcome:
    """Runs processes side by side and returns how they ended; SIGINT and SIGTERM are passed on.

    Args:
        commands: What to start.
        write: Receives each line of output, marked with the command's name.
        timeout: Seconds after which all are stopped, or `None`.
        grace: Seconds between asking a process to stop and killing it.
    """
    with ProcessGroup(commands, write=write, grace=grace) as group, _pass_on_signals(group):
        return group.wait(timeout)


def run_limited(
    argv: Sequence[str], *, timeout: float, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Returns the exit code and the output of a program that is killed when its time is up.

    Args:
        argv: The program and its arguments.
        timeout: Seconds; after them the code is `EXIT_TIMED_OUT`.
        env: Variables to set in addition to this process's own.

    Example:

    >>> import sys
    >>> run_limited([sys.executable, "-c", "print(1)"], timeout=60)
    (0, '1')
    """
    lines: list[str] = []
    with ProcessGroup([Command(argv, env=env or {})], write=lines.append, grace=0) as group:
        outcome = group.wait(timeout)
    return outcome.exit_code, "\n".join(lines)


def free_ports(count: int) -> list[int]:
    """Returns ports on loopback that nobody listens on now; another process may still take one."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def answers(host: str, port: int, timeout: float) -> bool:
    """Returns whether somebody accepts a connection on a port within `timeout` seconds."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def describe_exit(code: int) -> str:
    """Returns an exit code in words.

    Example:

    >>> describe_exit(137), describe_exit(3)
    ('was killed by SIGKILL', 'ended with exit code 3')
    """
    signals = {128 + int(one): one.name for one in signal.Signals}
    if code in signals:
        return f"was killed by {signals[code]}"
    if code == EXIT_RESUMABLE:
        return f"stopped with exit code {code}: it has saved its state and can be resumed"
    return f"ended with exit code {code}"


@contextlib.contextmanager
def _pass_on_signals(group: ProcessGroup) -> Iterator[None]:
    """Passes SIGINT and SIGTERM on to a group; only the main thread may, others leave it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def pass_on(signum: int, frame: FrameType | None) -> None:
        group.ask_to_stop(signum)

    before = {one: signal.signal(one, pass_on) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _signal_session(process: subprocess.Popen[bytes], signum: int) -> None:
    """Sends a signal to all processes of a child's session."""
    # ProcessLookupError: all have ended; PermissionError: only zombies are left (macOS).
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signum)


def _shell_code(returncode: int | None) -> int | None:
    """Returns `Popen.returncode` as a shell says it."""
    return 128 - returncode if returncode is not None and returncode < 0 else returncode
