"""Kills searches at random moments, and truncates their files: is every trial still there, once?

Three parts, each over random, grid, Hyperband and Bayesian search:

1. A search in one process is killed (SIGKILL) again and again, and started again each time.
2. `keras-tpu-kit search` runs with a chief and workers; at random moments the chief, a worker or
   the whole search is killed. What the command does not start again itself, this script does.
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
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from typing import Any

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

    def ended(self) -> set[str]:
        """Returns the trials that are over."""
        return {name for name, trial in self.trials.items() if trial[1] in ("COMPLETED", "FAILED")}


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def differences(found: Project, expected: Project, kills_own: str | None) -> list[str]:
    """Returns how a search that was disturbed differs from one that was not."""
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
    pid = os.fork()
    if pid == 0:
        try:
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            tuner, arguments = make_tuner()
            tuner.search(**arguments)
            os._exit(0)
        finally:
            import traceback

            traceback.print_exc()
            os._exit(1)
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


class Tally:
    """Counts what was done and what was found."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.truncations = self.reopened = self.self_kills = 0
        self.faults: list[str] = []

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
        done, snapshots = 0, []
        while True:
            runs = len(_lines(directory / "runs.txt"))
            pid = fork_search(directory / "log.txt")
            if done < kills:
                await_progress(directory, runs)
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
    """`keras-tpu-kit search` as a child."""

    def __init__(self, directory: pathlib.Path, workers: int) -> None:
        command = [
            *(sys.executable, "-m", "keras_tpu_kit", "search", "search_kills:make_tuner"),
            *("--workers", str(workers)),
        ]
        path = os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
        with (directory / "log.txt").open("a") as log:
            self.process = subprocess.Popen(
                command,
                cwd=HERE,
                env={**os.environ, "PYTHONPATH": path},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def children(self) -> dict[str, int]:
        """Returns the process ids of chief and workers, by name."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if entry.name.isdigit() and int(parent) == self.process.pid:
                    variables = (entry / "environ").read_text().split("\0")
                    names = [each for each in variables if each.startswith("KERASTUNER_TUNER_ID=")]
                    found[names[0].partition("=")[2]] = int(entry.name)
            except (OSError, IndexError):
                continue
        return found

    def kill_all(self) -> None:
        """Kills the command, then all that it started."""
        children = self.children()
        self.process.kill()
        for pid in children.values():
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


def kill_service(
    kind: str, expected: Project, kills: int, tally: Tally, chance: random.Random
) -> None:
    """Kills chief, workers or all of a served search, and lets it end."""
    with tempfile.TemporaryDirectory() as name:
        directory, kills_own = pathlib.Path(name), SELF_KILLING_TRIAL if kind == "grid" else None
        environment(kind, directory, 0.6, kills_own)
        workers = 2 if kind in ("random", "grid") else 1
        targets = [("chief", "worker0", "all")[place % 3] for place in range(kills)]
        service, snapshots, runs = Service(directory, workers), [], 0
        while service.process.poll() is None and targets:
            await_progress(directory, runs)
            time.sleep(chance.uniform(0.0, 1.0))
            if service.process.poll() is not None:
                break
            target, pids = targets.pop(0), service.children()
            if target == "all":
                service.kill_all()
            elif target in pids:
                os.kill(pids[target], signal.SIGKILL)
            tally.kills[f"{kind}, {target}"] += 1
            state = Project.read(directory)
            runs = sum(state.runs.values())
            snapshots.append((state.ended(), state.runs))
            if target == "all":
                service = Service(directory, workers)
        code = service.process.wait()
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
    sys.path.insert(0, str(HERE.parent.parent))
    # Imported once; the searches run in copies of this process.
    import keras_tpu_kit.tuner  # noqa: F401

    tally, chance = Tally(), random.Random(arguments.seed)
    expected = {kind: undisturbed(kind) for kind in arguments.kinds}
    each = arguments.kills // (2 * len(expected))
    for kind, project in expected.items():
        sys.stdout.write(f"{kind}: {len(project.trials)} trials\n")
        if 1 in arguments.parts:
            kill_in_process(kind, project, each, tally, chance)
        if 2 in arguments.parts:
            kill_service(kind, project, each, tally, chance)
        if 3 in arguments.parts:
            for _ in range(arguments.truncations // len(expected)):
                truncate(kind, project, tally, chance)
        sys.stdout.write(f"  kills so far {sum(tally.kills.values())}, faults {tally.faults}\n")
        sys.stdout.flush()
    counts = {
        "kills": dict(tally.kills),
        "kills_in_all": sum(tally.kills.values()),
        "deaths_by_own_trial": tally.self_kills,
        "truncations": tally.truncations,
        "reopened": tally.reopened,
        "faults": tally.faults,
    }
    sys.stdout.write(json.dumps(counts, indent=2) + "\n")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(counts, indent=2))
    return int(bool(tally.faults) or tally.reopened < tally.truncations)


if __name__ == "__main__":
    sys.exit(main())
