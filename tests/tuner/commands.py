"""Runs a search of `searched.py` as a user does, and tells what it left: processes and files."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from keras_tpu_kit.tuner.project import files
from tests.tuner import searched

ROOT = pathlib.Path(__file__).parents[2]
SEARCH = (sys.executable, "-m", "keras_tpu_kit", "search")
# Far beyond what anything here takes, for machines that many share.
PATIENCE = 120.0
_MARK = "SEARCHED_BY"


class Running:
    """A program that searches, with all that it starts; leaving the `with` block ends them.

    Args:
        argv: The program; it leads a process group, as a shell's job does.
        directory: Where the search's files are.
        variables: What `searched.py` reads, and others.
    """

    def __init__(
        self, argv: Sequence[str], directory: pathlib.Path, variables: dict[str, Any]
    ) -> None:
        self.directory = directory
        self._mark = uuid.uuid4().hex
        self._log = directory / f"{self._mark}.log"
        given = {"SEARCHED_DIRECTORY": directory, _MARK: self._mark, **variables}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                argv,
                env={**_environment(), **{name: str(value) for name, value in given.items()}},
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self) -> str:
        """What was written so far."""
        return self._log.read_text(errors="replace")

    def end(self) -> int:
        """Waits for the program's end, and returns its exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"It does not end:\n{self.output}") from None

    def send(self, number: int, *, to_group: bool = False) -> int:
        """Sends a signal to the program alone or to its group, and returns its exit code."""
        if to_group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.end()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for something that the search does, unless it ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            ended = self.process.poll() is not None
            assert not ended and time.monotonic() < deadline, self.output
            time.sleep(0.02)

    def pids(self) -> list[int]:
        """Returns all processes that run on its behalf, wherever their parents went."""
        mark, found = f"{_MARK}={self._mark}".encode(), []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (path / "environ").read_bytes().split(b"\0"):
                    found.append(int(path.name))
        return found


def _environment() -> dict[str, str]:
    """Returns this process's environment without what says where a search or a job is."""
    foreign = ("SLURM_", "KERAS_TPU_KIT_", "KERASTUNER_", "JOB_COMPLETION", "SEARCHED_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


@contextlib.contextmanager
def searching(
    directory: pathlib.Path,
    *arguments: str,
    target: str = "make_tuner",
    before: Sequence[str] = (),
    **variables: Any,
) -> Iterator[Running]:
    """Runs `keras-tpu-kit search` on a function of `searched.py`.

    Args:
        directory: Where the search's files are.
        *arguments: Options of the command.
        target: The function.
        before: A program that starts the command.
        **variables: Of the environment.
    """
    argv = [*before, *SEARCH, f"tests/tuner/searched.py:{target}", *arguments]
    with Running(argv, directory, variables) as running:
        yield running


def trials(directory: pathlib.Path) -> dict[str, tuple[dict[str, Any], str, float | None]]:
    """Returns values, status and score of each trial of a project, by its name."""
    found = {}
    for path in (directory / "p[1]").glob("trial_*/trial.json"):
        state = json.loads(path.read_text())
        values = state["hyperparameters"]["values"]
        found[state["trial_id"]] = (values, state["status"], state["score"])
    return found


def ended(directory: pathlib.Path) -> collections.Counter[str]:
    """Returns how often each trial's end was noted in the project's journal."""
    lines = files.read_lines(directory / "p[1]" / "trials.jsonl")
    return collections.Counter(line["trial_id"] for line in lines)


def crashes(directory: pathlib.Path) -> dict[str, int]:
    """Returns how often each trial's process is held to have died in it."""
    state = json.loads((directory / "p[1]" / "oracle.json").read_text())
    counted: dict[str, int] = state["keras_tpu_kit"]["crashes"]
    return counted


def epochs(directory: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the epochs that were trained, in order."""
    return files.read_lines(directory / searched.NOTES)
