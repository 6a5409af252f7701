"""Trials per minute: stock KerasTuner, the kit in one process, and the kit's two workers.

All three run the same grid of 16 trials (784-128-10 on MNIST, batch 128, two epochs), with the
same initial weights, turn by turn. Rates are over each search, without starting Python and
importing TensorFlow; for workers from the first trial's beginning to the last one's end. With
--cpu the processor's seconds are compared as well, which a busy machine does not change.

    python benchmarks/search.py --data mnist.npz --json search.json
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

GOAL_WORKERS, GOAL_ONE_PROCESS = 2.5, 1.5

EPOCHS, BATCH = 2, 128
RATES = [3e-4, 1e-3, 3e-3, 1e-2]
SLOPES = [0.0, 0.05, 0.1, 0.2]

CONTENDERS = ("stock", "kit", "workers")


def data(path: str, rows: int) -> tuple[Any, Any]:
    """Returns rows to train on and rows to compare by."""
    import numpy as np

    with np.load(path) as file:
        x, y = (file["x_train"].reshape(-1, 784) / 255).astype("float32"), file["y_train"]
    return (x[:rows], y[:rows]), (x[50_000:], y[50_000:])


def build(hp: Any) -> Any:
    """Returns the model; its seeds are fixed, so that equal values begin with equal weights."""
    import keras

    def dense(units: int, seed: int, **options: Any) -> Any:
        start = keras.initializers.GlorotUniform(seed=seed)
        return keras.layers.Dense(units, kernel_initializer=start, **options)

    slope = hp.Choice("slope", SLOPES)
    layers = [dense(128, 1), keras.layers.LeakyReLU(negative_slope=slope), dense(10, 2)]
    model = keras.Sequential([keras.Input((784,)), *layers])
    model.compile(
        keras.optimizers.Adam(hp.Choice("rate", RATES)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def make_tuner() -> Any:
    """Returns the kit's search and its data, as the command asks for it."""
    import keras_tpu_kit as ktk

    settings = json.loads(os.environ["SEARCH_BENCHMARK"])
    tuner = ktk.GridSearch(
        build,
        "val_accuracy",
        max_trials=settings["trials"],
        seed=1,
        strategy="cpu",
        log="quiet",
        directory=settings["directory"],
        project_name="search",
    )
    train, valid = data(settings["data"], settings["rows"])
    fit = {"validation_data": valid, "epochs": EPOCHS, "batch_size": BATCH, "verbose": 0}
    return tuner, {"x": train[0], "y": train[1], **fit}


def stock_tuner(settings: dict[str, Any]) -> Any:
    """Returns KerasTuner's search of the same grid, and its data."""
    import keras_tuner

    tuner = keras_tuner.GridSearch(
        build,
        "val_accuracy",
        max_trials=settings["trials"],
        seed=1,
        directory=settings["directory"],
        project_name="search",
    )
    train, valid = data(settings["data"], settings["rows"])
    fit = {"validation_data": valid, "epochs": EPOCHS, "batch_size": BATCH, "verbose": 0}
    return tuner, {"x": train[0], "y": train[1], **fit}


def child(contender: str) -> None:
    """Searches in this process, and prints seconds and objectives as JSON."""
    settings = json.loads(os.environ["SEARCH_BENCHMARK"])
    tuner, arguments = stock_tuner(settings) if contender == "stock" else make_tuner()
    wall, processor = time.perf_counter(), time.process_time()
    if contender != "workers":
        tuner.search(**arguments)
    seconds, busy = time.perf_counter() - wall, time.process_time() - processor
    if contender == "workers":
        results = tuner.results()
        ends = [each["began"] + each["seconds"] for each in results]
        seconds = max(ends) - min(each["began"] for each in results)
    scores = {
        f"{trial.hyperparameters.get('rate')}/{trial.hyperparameters.get('slope')}": trial.score
        for trial in tuner.oracle.trials.values()
    }
    sys.stdout.write("RESULT " + json.dumps({"seconds": seconds, "cpu": busy, "scores": scores}))


def measure(contender: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Runs one contender in processes of its own, and returns what it took."""
    here = pathlib.Path(__file__).parent
    path = os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as directory:
        told = json.dumps({**settings, "directory": directory})
        environment = {**os.environ, "PYTHONPATH": path, "SEARCH_BENCHMARK": told}
        environment["TF_CPP_MIN_LOG_LEVEL"] = "3"
        options: dict[str, Any] = {"cwd": here, "env": environment}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if contender == "workers":
            target = ["search", "search:make_tuner", "--workers", str(settings["workers"])]
            command = [sys.executable, "-m", "keras_tpu_kit", *target]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "--child", contender]
        done = subprocess.run(command, check=True, capture_output=True, text=True, **options)
    found: dict[str, Any] = json.loads(done.stdout.partition("RESULT ")[2])
    if contender == "workers":
        found["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def figures(rounds: list[dict[str, dict[str, Any]]], trials: int) -> dict[str, Any]:
    """Returns medians over the rounds; ratios are taken within a round."""
    found: dict[str, Any] = {}
    for name in rounds[0]:
        rate = statistics.median(60 * trials / each[name]["seconds"] for each in rounds)
        busy = statistics.median(each[name]["cpu"] for each in rounds) / trials
        ratio = statistics.median(
            each["stock"]["seconds"] / each[name]["seconds"] for each in rounds
        )
        gaps = [
            each[name]["scores"][key] - each["stock"]["scores"][key]
            for each in rounds
            for key in each["stock"]["scores"]
        ]
        found[name] = {
            "trials_per_minute": rate,
            "cpu_seconds_per_trial": busy,
            "ratio": ratio,
            "cpu_ratio": statistics.median(
                each["stock"]["cpu"] / each[name]["cpu"] for each in rounds
            ),
            "mean_gap": statistics.fmean(gaps),
            "largest_gap": max(map(abs, gaps)),
        }
    return found


def main() -> int:
    """Prints the figures and returns 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="an mnist.npz file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--json", help="file for the figures and all rounds")
    parser.add_argument("--child", choices=CONTENDERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return 0
    settings = {name: getattr(args, name) for name in ("data", "trials", "rows", "workers")}
    settings["data"] = str(pathlib.Path(args.data).resolve())
    rounds = []
    for number in range(args.rounds):
        rounds.append({name: measure(name, settings) for name in args.only})
        shown = {name: round(each["seconds"], 1) for name, each in rounds[-1].items()}
        sys.stdout.write(f"round {number + 1}: seconds {shown}\n")
        sys.stdout.flush()
    found = figures(rounds, args.trials)
    for name, each in found.items():
        told = ", ".join(f"{what} {value:.4g}" for what, value in each.items())
        sys.stdout.write(f"{name:>8}: {told}\n")
    if args.json:
        text = json.dumps({"figures": found, "rounds": rounds})
        pathlib.Path(args.json).write_text(text)
    missed = found.get("workers", {}).get("ratio", GOAL_WORKERS) < GOAL_WORKERS
    return int(missed or found.get("kit", {}).get("ratio", GOAL_ONE_PROCESS) < GOAL_ONE_PROCESS)


if __name__ == "__main__":
    sys.exit(main())
