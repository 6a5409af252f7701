"""Resident memory of a search of many small trials, all of its processes together.

Keras keeps some of every model that was ever trained in a process, so the command replaces a
worker that has grown too much. This runs 200 trials with one worker and reads `/proc` twice a
second.

    python benchmarks/search_memory.py --json memory.json
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

GOAL_RATIO = 2.0  # Of the size after 10 trials, at any later moment.
GOAL_GROWTH_MB = 200.0  # From trial 20 to the end.


def make_tuner() -> Any:
    """Returns the search, and its data: 64 rows, four layers of 256, two epochs."""
    import keras
    import numpy as np

    import keras_tpu_kit as ktk

    rows = np.random.default_rng(0)
    x, y = rows.random((64, 64), dtype="float32"), rows.random((64, 1), dtype="float32")

    def build(hp: Any) -> Any:
        hidden = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
        model = keras.Sequential([keras.Input((64,)), *hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-1)), "mse")
        return model

    tuner = ktk.RandomSearch(
        build,
        "val_loss",
        max_trials=int(os.environ["SEARCH_MEMORY_TRIALS"]),
        seed=1,
        strategy="cpu",
        directory=os.environ["SEARCH_MEMORY_DIRECTORY"],
        project_name="memory",
    )
    return tuner, {"x": x, "y": y, "validation_data": (x, y), "batch_size": 16, "epochs": 2}


def measure(trials: int, arguments: list[str], path: str | None) -> list[tuple[int, float]]:
    """Runs the search, and returns pairs of trials finished and megabytes resident."""
    samples: list[tuple[int, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        variables = {"SEARCH_MEMORY_TRIALS": str(trials), "SEARCH_MEMORY_DIRECTORY": directory}
        command = [
            *(sys.executable, "-m", "keras_tpu_kit", "search", "search_memory:make_tuner"),
            *arguments,
        ]
        here = pathlib.Path(__file__).parent
        folders = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
        search = subprocess.Popen(
            command,
            cwd=here,
            env={**os.environ, **variables, "PYTHONPATH": folders},
            stdout=subprocess.DEVNULL,
        )
        journal = pathlib.Path(directory, "memory", "trials.jsonl")
        while search.poll() is None:
            finished = len(journal.read_bytes().splitlines()) if journal.exists() else 0
            samples.append((finished, sum(map(resident_megabytes, family(search.pid)))))
            if path is not None and len(samples) % 60 == 0:
                pathlib.Path(path).write_text(json.dumps({"samples": samples}))
            time.sleep(0.5)
        if search.returncode:
            raise SystemExit(f"The search ended with exit code {search.returncode}.")
    return samples


def family(pid: int) -> list[int]:
    """Returns a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ones = [], [pid]
    while open_ones:
        found.append(open_ones.pop())
        open_ones += children.get(found[-1], [])
    return found


def resident_megabytes(pid: int) -> float:
    """Returns the resident set of a process, 0 where it has just ended."""
    try:
        pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def figures(samples: list[tuple[int, float]]) -> dict[str, float]:
    """Returns what the goals speak of, in megabytes.

    The size "after n trials" is the largest while n to n + 4 trials were finished, so that a
    moment in which a worker is being replaced does not stand for it.
    """

    def around(first: int) -> float:
        return max(size for finished, size in samples if first <= finished < first + 5)

    last = max(finished for finished, _ in samples)
    later = [size for finished, size in samples if finished >= 10]
    return {
        "trials": last,
        "after_10": around(10),
        "after_20": around(20),
        "at_the_end": around(last - 5),
        "largest_later": max(later),
        "ratio": max(later) / around(10),
        "growth_from_20": max(size for finished, size in samples if finished >= 20) - around(20),
    }


def main() -> int:
    """Prints the figures and returns 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--json", help="file for the figures and all samples")
    arguments, rest = parser.parse_known_args()
    samples = measure(arguments.trials, rest or ["--workers", "1"], arguments.json)
    found = figures(samples)
    for name, value in found.items():
        sys.stdout.write(f"{name:>16} {value:10.2f}\n")
    if arguments.json:
        text = json.dumps({"figures": found, "samples": samples})
        pathlib.Path(arguments.json).write_text(text)
    return int(found["ratio"] >= GOAL_RATIO or found["growth_from_20"] >= GOAL_GROWTH_MB)


if __name__ == "__main__":
    sys.exit(main())
