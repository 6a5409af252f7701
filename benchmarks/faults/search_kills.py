"""Kills searches at random moments, and truncates their files: is every trial still there, once?

Three parts, each over random, grid, Hyperband and Bayesian search:

1. A search in one process is killed (SIGKILL) again and again, and started again each time.
2. What `keras-tpu-kit search` runs, a supervisor, a chief and workers, loses the chief, a worker or
   all of them at random moments. What the supervisor does not start again, this script does.
3. A search is stopped in its middle, one of its files is cut off or deleted, and it goes on.

Each search has to end with exactly the trials of one that nobody disturbed: the same names,
values, scores and states, each once in the journal; and a trial that was finished before a kill
must not run again. One trial of part 1 and 2 kills its own process each time: it has to end as
failed after its third.

    python benchmarks/faults/search_kills.py --json kills.json

A trial's training is a wait here, and its score a function of its values, so that what is compared
is exact. Bayesian and Hyperband searches run with one worker in part 2: with more, their trials
depend on which worker is faster, disturbed or not.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import random
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

HERE = pathlib.Path(__file__).parent
KINDS = ("random", "grid", "hyperband", "bayesian")
SELF_KILLING_TRIAL = "3"


def make_tuner() -> Any:
    """Returns the search that the environment names; a chief and its workers call it."""
    import keras
    import keras_tuner
    import numpy as np

    import keras_tpu_kit as ktk

    kind, directory = os.environ["KILLS_KIND"], pathlib.Path(os.environ["KILLS_DIRECTORY"])

    class Waits(keras_tuner.HyperModel):
        """Builds a model, and waits instead of training it."""

        def build(self, hp: Any) -> Any:
            hp.Choice("a", [1, 2, 3])
            hp.Choice("b", ["x", "y", "z"])
            if kind != "grid":
                hp.Float("c", 0.0, 1.0)
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            return model

        def fit(self, hp: Any, model: Any, *args: Any, **kwargs: Any) -> dict[str, float]:
            trial = tuner._run.trial.trial_id
            with (directory / "runs.txt").open("a") as file:
                file.write(f"{trial}\n")
            if trial.lstrip("0") == os.environ.get("KILLS_SELF", "none"):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(float(os.environ["KILLS_WAIT"]))
            values = hp.values
            return {"score": score(values["a"], values["b"], values.get("c", 0.0))}

    options = {
        "directory": directory,
        "project_name": "kills[1]",
        "seed": 5,
        "strategy": "cpu",
    }
    objective = keras_tuner.Objective("score", "max")
    if kind == "random":
        tuner = ktk.RandomSearch(Waits(), objective, max_trials=12, **options)
    elif kind == "grid":
        tuner = ktk.GridSearch(Waits(), objective, **options)
    elif kind == "hyperband":
        tuner = ktk.Hyperband(Waits(), objective, max_epochs=6, **options)
    else:
        tuner = ktk.BayesianOptimization(
            Waits(), objective, max_trials=12, num_initial_points=6, **options
        )
    rows = np.zeros((8, 1), "float32")
    return tuner, {"x": rows, "y": rows, "batch_size": 8, "epochs": 1, "verbose": 0}


def score(a: int, b: str, c: float) -> float:
    """Returns a trial's objective; exact in float32, which is what travels to a chief."""
    return a + "xyz".index(b) / 4 + round(c * 64) / 256


@dataclasses.dataclass
class Project:
    """What a search left in its directory."""

    trials: dict[str, Any]
    journal: Counter[str]
    runs: Counter[str]

    @classmethod
    def read(cls, directory: pathlib.Path) -> Project:
        """Reads it; a file that is being written is left out."""
        trials, project = {}, directory / "kills[1]"
        for path in project.iterdir() if project.exists() else ():
            try:
                state = json.loads((path / "trial.json").read_text())
            except (OSError, ValueError):
                continue
            values = state["hyperparameters"]["values"]
            trials[state["trial_id"]] = (values, state["status"], state["score"])
        lines = _lines(project / "trials.jsonl")
        journal = Counter(json.loads(line)["trial_id"] for line in lines if line.endswith("}"))
        return cls(trials, journal, Counter(_lines(directory / "runs.txt")))

    @staticmethod
    def running(directory: pathlib.Path) -> dict[str, str]:
        """Returns the trials that run now, by the name of their worker."""
        try:
            state = json.loads((directory / "kills[1]" / "oracle.json").read_text())
        except (OSError, ValueError):
            return {}
        ended = set(state["end_order"])
        return {who: name for who, name in state["ongoing_trials"].items() if name not in ended}

    def ended(self) -> set[str]:
        """Returns the trials that are over."""
        return {name for name, trial in self.trials.items() if trial[1] in ("COMPLETED", "FAILED")}


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def differences(found: Project, expected: Project, kills_own: str | None) -> list[str]:
    """Returns how a search that was disturbed differs from one that was not.

    No kill here hits a trial that two have hit already, so that only the trial that kills its own
    process may end as failed.
    """
    faults = []
    for name in sorted(expected.trials.keys() | found.trials.keys()):
        has, wants = found.trials.get(name), expected.trials.get(name)
        if name.lstrip("0") == kills_own and has is not None and wants is not None:
            if has[0] != wants[0] or has[1] != "FAILED" or found.runs[name] != 3:
                faults.append(f"trial {name} kills its process and is {has}, {found.runs[name]}x")
        elif has != wants:
            faults.append(f"trial {name} is {has}, not {wants}")
    twice = [name for name, count in found.journal.items() if count != 1]
    missing = found.trials.keys() - found.journal.keys()
    return faults + [f"journal: {twice} not once, {missing} missing"] * bool(twice or missing)


def environment(kind: str, directory: pathlib.Path, wait: float, kills_own: str | None) -> None:
    """Says to this process and its children which search is meant."""
    os.environ.update(
        KILLS_KIND=kind,
        KILLS_DIRECTORY=str(directory),
        KILLS_WAIT=str(wait),
        KILLS_SELF=kills_own or "none",
        TF_CPP_MIN_LOG_LEVEL="3",
    )


def fork_search(log: pathlib.Path) -> int:
    """Starts the search in a copy of this process, which has imported TensorFlow, not used it."""

    def search() -> int:
        tuner, arguments = make_tuner()
        tuner.search(**arguments)
        return 0

    pid = os.fork()
    if pid == 0:
        in_child(log, search)
    return pid


def finish(pid: int, seconds: float | None = None) -> int | None:
    """Waits for a child, and returns its exit code; `None` if it still runs after `seconds`."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while deadline is None or time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def undisturbed(kind: str) -> Project:
    """Returns what the search comes to when nobody disturbs it."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        environment(kind, directory, 0.0, None)
        code = finish(fork_search(directory / "log.txt"))
        if code:
            sys.stdout.write((directory / "log.txt").read_text())
            raise SystemExit(f"The undisturbed {kind} search ended with {code}.")
        return Project.read(directory)


def await_progress(directory: pathlib.Path, runs: int, seconds: float = 120.0) -> None:
    """Waits until a search has begun another trial."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and len(_lines(directory / "runs.txt")) <= runs:
        time.sleep(0.02)


def may_hit(running: Iterable[str], hits: Counter[str]) -> bool:
    """Notes that trials are about to lose their process, unless one did so twice before."""
    names = list(running)
    if any(hits[name] >= 2 for name in names if name):
        return False
    hits.update(names)
    return True


class Tally:
    """Counts what was done and what was found."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.truncations = self.reopened = self.self_kills = 0
        self.faults: list[str] = []

    def counts(self) -> dict[str, Any]:
        """Returns all of it."""
        return {
            "kills": dict(self.kills),
            "kills_in_all": sum(self.kills.values()),
            "deaths_by_own_trial": self.self_kills,
            "truncations": self.truncations,
            "reopened": self.reopened,
            "faults": self.faults,
        }

    def run_again(self, before: set[str], runs: Counter[str], directory: pathlib.Path) -> None:
        """Notes trials that ran after they were over."""
        now = Counter(_lines(directory / "runs.txt"))
        again = [name for name in before if now[name] > runs[name]]
        self.faults += [f"{directory.name}: trial {name} ran after its end" for name in again]


def kill_in_process(
    kind: str, expected: Project, kills: int, tally: Tally, chance: random.Random
) -> None:
    """Kills a search in one process again and again, and lets it end."""
    with tempfile.TemporaryDirectory() as name:
        directory, kills_own = pathlib.Path(name), SELF_KILLING_TRIAL if kind == "random" else None
        environment(kind, directory, 0.25, kills_own)
        done, snapshots, hits = 0, [], Counter[str]()
        while True:
            runs = len(_lines(directory / "runs.txt"))
            pid = fork_search(directory / "log.txt")
            if done < kills:
                await_progress(directory, runs)
                code = finish(pid, chance.uniform(0.0, 0.8))
                while code is None and not may_hit(Project.running(directory).values(), hits):
                    code = finish(pid, chance.uniform(0.0, 0.8))
                if code is None:
                    os.kill(pid, signal.SIGKILL)
                    code = finish(pid)
                    done += 1
                    tally.kills[f"{kind}, one process"] += 1
                    state = Project.read(directory)
                    snapshots.append((state.ended(), state.runs))
            else:
                code = finish(pid)
            if code == -signal.SIGKILL:
                continue
            if code:
                tally.faults.append((directory / "log.txt").read_text()[-2000:])
            break
        for ended, ran in snapshots:
            tally.run_again(ended, ran, directory)
        found = Project.read(directory)
        tally.self_kills += found.runs[_padded(found, kills_own)] if kills_own else 0
        tally.faults += [f"{kind}: {f}" for f in differences(found, expected, kills_own)]


def _padded(project: Project, name: str) -> str:
    return next((each for each in project.trials if each.lstrip("0") == name), name)


class Service:
    """What `keras-tpu-kit search` runs: its supervisor, a chief and workers.

    Each process is forked from this one, which has imported TensorFlow and never used it, as to
    import it anew after every kill would take most of the time. Everything else is the command's
    own. The supervisor asks for processes, and for how they ended, over a socket.
    """

    def __init__(self, directory: pathlib.Path, workers: int) -> None:
        self._log = directory / "log.txt"
        self.children: dict[str, int] = {}
        self._codes: dict[int, int | None] = {}
        self._socket, theirs = socket.socketpair()
        self.supervisor = os.fork()
        if self.supervisor == 0:
            self._socket.close()
            in_child(self._log, lambda: supervise(theirs, workers))
        theirs.close()
        self._codes[self.supervisor] = None

    def step(self, seconds: float = 0.02) -> int | None:
        """Answers the supervisor for a while; returns its exit code once it has ended."""
        readable, _, _ = select.select([self._socket], [], [], seconds)
        request = self._socket.recv(65536) if readable else b""
        for pid, code in list(self._codes.items()):
            if code is None:
                done, status = os.waitpid(pid, os.WNOHANG)
                self._codes[pid] = os.waitstatus_to_exitcode(status) if done else None
        if request:
            message = json.loads(request)
            if "pid" in message:
                answer = self._codes[message["pid"]]
            else:
                answer = self._fork(message["name"], message["env"])
            self._socket.sendall(json.dumps(answer).encode())
        return self._codes[self.supervisor]

    def _fork(self, name: str, variables: dict[str, str]) -> int:
        pid = os.fork()
        if pid == 0:
            self._socket.close()
            os.environ.update(variables)
            # They are children of this process, not of the supervisor.
            os.environ["KERAS_TPU_KIT_PARENT"] = str(os.getppid())
            in_child(self._log, take_part)
        self.children[name], self._codes[pid] = pid, None
        return pid

    def kill(self, name: str) -> bool:
        """Kills a process, and returns whether it ran."""
        pid = self.supervisor if name == "supervisor" else self.children.get(name, 0)
        if pid == 0 or self._codes[pid] is not None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def kill_all(self) -> None:
        """Kills the supervisor, then all that it had started."""
        for name in ("supervisor", *self.children):
            self.kill(name)
        while None in self._codes.values():
            for pid in [pid for pid, code in self._codes.items() if code is None]:
                _, status = os.waitpid(pid, 0)
                self._codes[pid] = os.waitstatus_to_exitcode(status)
        self._socket.close()


def take_part() -> int:
    """Is a chief or a worker, as the environment says."""
    from keras_tpu_kit import cli

    return cli.main(["search", "search_kills:make_tuner"])


def supervise(channel: socket.socket, workers: int) -> int:
    """Is the process that watches the others."""
    from keras_tpu_kit import processes
    from keras_tpu_kit.searching import SearchSupervisor, ServiceSettings, this_machine

    def ask(message: dict[str, Any]) -> Any:
        channel.sendall(json.dumps(message).encode())
        return json.loads(channel.recv(65536))

    class Forked:
        """Stands for `processes.ProcessGroup` of one process."""

        def __init__(self, command: processes.Command) -> None:
            self.pids = (ask({"name": command.name, "env": dict(command.env)}),)
            self._code: int | None = None

        def exit_codes(self) -> tuple[int | None]:
            if self._code is None:
                code = ask({"pid": self.pids[0]})
                self._code = 128 - code if code is not None and code < 0 else code
            return (self._code,)

        def stop(self, grace: float = 10.0) -> None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                deadline = time.monotonic() + grace
                if self.exit_codes()[0] is None:
                    os.kill(self.pids[0], number)
                while self.exit_codes()[0] is None and time.monotonic() < deadline:
                    time.sleep(0.02)

    port, token = processes.free_ports(1)[0], "0123456789abcdef"
    names = ["chief", *(f"worker{place}" for place in range(workers))]
    chief, *others = [
        ServiceSettings(name, "127.0.0.1", port, token, wait_seconds=60.0) for name in names
    ]
    shares = this_machine("cpu").shares(workers)
    supervisor = SearchSupervisor([], chief, others, shares, sys.stdout.write, Forked)  # type: ignore[arg-type]
    return supervisor.run()


def in_child(log: pathlib.Path, work: Callable[[], int]) -> NoReturn:
    """Ends a forked process with the exit code of some work."""
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        code = work()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        if code not in (0, 75, 79):
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)


def kill_service(
    kind: str, expected: Project, kills: int, tally: Tally, chance: random.Random
) -> None:
    """Kills chief, workers or all of a served search, and lets it end."""
    with tempfile.TemporaryDirectory() as name:
        directory, kills_own = pathlib.Path(name), SELF_KILLING_TRIAL if kind == "grid" else None
        environment(kind, directory, 0.4, kills_own)
        workers = 2 if kind in ("random", "grid") else 1
        targets = [("chief", "worker0", "all")[place % 3] for place in range(kills)]
        service, snapshots, runs = Service(directory, workers), [], 0
        moment, hits = None, Counter[str]()
        while (code := service.step()) is None:
            if not targets:
                continue
            if moment is None and len(_lines(directory / "runs.txt")) > runs:
                moment = time.monotonic() + chance.uniform(0.0, 0.8)
            if moment is None or time.monotonic() < moment:
                continue
            target, running = targets[0], Project.running(directory)
            hit = {"chief": [], "worker0": [running.get("worker0", "")], "all": running.values()}
            if not may_hit(hit[target], hits):
                moment = time.monotonic() + chance.uniform(0.0, 0.8)
                continue
            if target == "all":
                service.kill_all()
            elif not service.kill(target):
                continue
            targets.pop(0)
            tally.kills[f"{kind}, {target}"] += 1
            state = Project.read(directory)
            snapshots.append((state.ended(), state.runs))
            runs, moment = sum(state.runs.values()), None
            if target == "all":
                service = Service(directory, workers)
        if code:
            tally.faults.append((directory / "log.txt").read_text()[-3000:])
        for ended, ran in snapshots:
            tally.run_again(ended, ran, directory)
        found = Project.read(directory)
        tally.self_kills += found.runs[_padded(found, kills_own)] if kills_own else 0
        tally.faults += [f"{kind}, served: {f}" for f in differences(found, expected, kills_own)]


def truncate(kind: str, expected: Project, tally: Tally, chance: random.Random) -> None:
    """Stops a search in its middle, damages one of its files, and lets it end."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        environment(kind, directory, 0.15, None)
        pid = fork_search(directory / "log.txt")
        await_progress(directory, 0)
        code = finish(pid, chance.uniform(0.3, 1.2))
        if code is None:
            os.kill(pid, signal.SIGKILL)
            finish(pid)
        project = directory / "kills[1]"
        files = [*project.glob("*.json"), *project.glob("trial_*/trial.json")]
        victim = chance.choice(sorted(files))
        if chance.random() < 0.25:
            victim.unlink()
        else:
            os.truncate(victim, chance.randrange(victim.stat().st_size))
        tally.truncations += 1
        code = finish(fork_search(directory / "log.txt"))
        if code:
            tally.faults.append((directory / "log.txt").read_text()[-2000:])
            return
        tally.reopened += 1
        faults = differences(Project.read(directory), expected, None)
        tally.faults += [f"{kind}, {victim.name} damaged: {fault}" for fault in faults]


def main() -> int:
    """Prints the counts and returns 1 where a trial was lost, changed or run twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=56, help="in all (default: 56)")
    parser.add_argument("--truncations", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--parts", nargs="+", type=int, default=(1, 2, 3), choices=(1, 2, 3))
    parser.add_argument("--json", help="file for the counts")
    arguments = parser.parse_args()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.path[:0] = [str(HERE), str(HERE.parent.parent)]
    # Imported once; the searches run in copies of this process.
    import keras_tpu_kit.tuner  # noqa: F401

    tally, chance = Tally(), random.Random(arguments.seed)
    each = arguments.kills // (len({1, 2} & set(arguments.parts)) * len(arguments.kinds) or 1)
    for kind in arguments.kinds:
        expected = undisturbed(kind)
        sys.stdout.write(f"{kind}: {len(expected.trials)} trials\n")
        if 1 in arguments.parts:
            kill_in_process(kind, expected, each, tally, chance)
        if 2 in arguments.parts:
            kill_service(kind, expected, each, tally, chance)
        if 3 in arguments.parts:
            for _ in range(arguments.truncations // len(arguments.kinds)):
                truncate(kind, expected, tally, chance)
        text = json.dumps(tally.counts(), indent=2)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        if arguments.json:
            pathlib.Path(arguments.json).write_text(text)
    return int(bool(tally.faults) or tally.reopened < tally.truncations)


if __name__ == "__main__":
    sys.exit(main())
