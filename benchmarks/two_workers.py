"""What two workers reach of what two trainings do that know nothing of each other.

    python benchmarks/two_workers.py --json two_workers.json

Each round trains benchmarks/small_cnn.py on one core alone, twice side by side without a
connection, and on two workers, each process on a core of its own with one thread to compute.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import rich.console
import rich.table

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.processes import free_ports

KINDS = ("one alone", "two unrelated", "two workers")
BATCH, EPOCHS = 64, 4


def child(processor: int) -> None:
    """Trains on one core and prints samples and processor seconds, the first epoch left out."""
    os.sched_setaffinity(0, [processor])
    import keras
    import small_cnn

    import keras_tpu_kit as ktk

    workers = 2 if "TF_CONFIG" in os.environ else 1
    clocks: list[tuple[float, float]] = []

    class Clocks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            clocks.append((time.perf_counter(), time.process_time()))

    strategy = ktk.detect_strategy() if workers > 1 else ktk.detect_strategy(simulate=1)
    factory = small_cnn.SmallCnn(strategy)
    data, _ = factory.data()
    run = factory.fit(
        data,
        global_batch_size=BATCH * workers,
        epochs=EPOCHS,
        seed=0,
        verbose=0,
        callbacks=[Clocks()],
    )
    (first, cpu_first), (last, cpu_last) = clocks[0], clocks[-1]
    steps = run.plan.steps_per_epoch * (EPOCHS - 1)
    told = {
        "samples_per_second": steps * BATCH / (last - first),
        "step_ms": 1e3 * (last - first) / steps,
        "cpu_ms": 1e3 * (cpu_last - cpu_first) / steps,
    }
    sys.stdout.write(f"RESULT {json.dumps(told)}\n")
    sys.stdout.flush()
    os._exit(0)  # TensorFlow may wait for the other worker at exit.


def train(kind: str) -> dict[str, float]:
    """Returns the samples per second of all processes, and their mean milliseconds a step."""
    count = 1 if kind == "one alone" else 2
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    started = []
    for index in range(count):
        env = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_NUM_INTEROP_THREADS": "1",
        }
        if kind == "two workers":
            env["TF_CONFIG"] = Cluster(addresses, index).to_tf_config()
        argv = [sys.executable, __file__, "--child", str(index)]
        started.append(subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in started]
    told = [json.loads(output.partition("RESULT ")[2]) for output in outputs]
    return {
        "samples_per_second": sum(each["samples_per_second"] for each in told),
        "step_ms": statistics.mean(each["step_ms"] for each in told),
        "cpu_ms": statistics.mean(each["cpu_ms"] for each in told),
    }


def main() -> None:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        child(arguments.child)
    rounds = [{kind: train(kind) for kind in KINDS} for _ in range(arguments.rounds)]
    table = rich.table.Table(title=f"Medians of {arguments.rounds} rounds")
    for column in ("training", "samples/s", "range", "ms a step", "of them computing", "times one"):
        table.add_column(column)
    for kind in KINDS:
        rates = [each[kind]["samples_per_second"] for each in rounds]
        ratios = [
            each[kind]["samples_per_second"] / each["one alone"]["samples_per_second"]
            for each in rounds
        ]
        table.add_row(
            kind,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{statistics.median(each[kind]['step_ms'] for each in rounds):.1f}",
            f"{statistics.median(each[kind]['cpu_ms'] for each in rounds):.1f}",
            f"{statistics.median(ratios):.2f}",
        )
    rich.console.Console(width=100).print(table)
    of_limit = [
        each["two workers"]["samples_per_second"] / each["two unrelated"]["samples_per_second"]
        for each in rounds
    ]
    sys.stdout.write(f"Two workers reach {statistics.median(of_limit):.2f} of two unrelated.\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
