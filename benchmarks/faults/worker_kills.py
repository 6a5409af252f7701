"""Kills a worker of two at random moments: does the other end, and does a restart finish?

    python benchmarks/faults/worker_kills.py [--kills 10] [--seed 1] [--json kills.json]

The two workers are started apart, as on two machines, so that the one that is left has to end by
itself: with an error that says why, within 60 seconds of the kill, or of when it had imported
TensorFlow where the kill came before that. Then both are started again, and must finish
all epochs with finite and equal weights. Moments are drawn evenly over the time that an undisturbed
run takes, start-up included; the first line of the table is that run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time
from typing import Any

from keras_tpu_kit import report
from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.processes import Command, ProcessGroup, free_ports

JOB = str(pathlib.Path(__file__).with_name("job.py"))
ROOT = str(pathlib.Path(__file__).parents[2])
LIMIT = 60.0
PATIENCE = 900.0  # only bounds a hang of the script itself
REASONS = ("worker-lost", "worker-absent", "workers-not-connected")


class Pair:
    """Two workers that nobody but themselves ends.

    Args:
        folder: Where they keep their backup.
        epochs: How long they train.
    """

    def __init__(self, folder: str, epochs: int) -> None:
        addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
        self.lines: tuple[list[str], list[str]] = ([], [])
        self.begun = time.monotonic()
        self.workers = [
            ProcessGroup(
                [Command(_argv(folder, epochs), env=_environment(addresses, index))],
                write=self.lines[index].append,
            )
            for index in range(2)
        ]

    def kill(self, index: int) -> None:
        """Kills one worker with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.workers[index].pids[0], signal.SIGKILL)

    def await_ready(self, index: int) -> None:
        """Waits until a worker has imported TensorFlow, which on a busy machine takes long."""
        deadline = time.monotonic() + PATIENCE
        while "ready" not in self.lines[index] and time.monotonic() < deadline:
            if self.workers[index].exit_codes() != (None,):
                return
            time.sleep(0.05)

    def wait(self, index: int, seconds: float) -> tuple[int, float, bool]:
        """Returns a worker's exit code, the seconds waited, and whether it had to be ended."""
        begun = time.monotonic()
        outcome = self.workers[index].wait(seconds)
        return outcome.exit_code, time.monotonic() - begun, outcome.timed_out

    def finish(self) -> list[dict[str, Any]]:
        """Returns what both workers said when they had trained to the end."""
        for index in range(2):
            code, _, _ = self.wait(index, PATIENCE)
            if code:
                self.kill(1 - index)
                raise SystemExit("\n".join([f"A restart failed ({code}):", *self.lines[index]]))
        # TensorFlow may have the last word.
        ends = [[line for line in lines if line.startswith('{"epochs"')] for lines in self.lines]
        return [json.loads(lines[-1]) for lines in ends]


def _argv(folder: str, epochs: int) -> list[str]:
    return [sys.executable, JOB, folder, "--epochs", str(epochs), "--save", "backup"]


def _environment(addresses: tuple[str, ...], index: int) -> dict[str, str]:
    return {
        "TF_CONFIG": Cluster(addresses, index).to_tf_config(),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONPATH": ROOT,
    }


def disturb(seconds: float, victim: int, epochs: int) -> dict[str, Any]:
    """Kills a worker after some seconds, restarts both, and returns what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(folder, epochs)
        time.sleep(seconds)
        pair.kill(victim)
        pair.await_ready(1 - victim)
        rest_code, rest_seconds, hung = pair.wait(1 - victim, LIMIT)
        said = "\n".join(pair.lines[1 - victim])
        reached = sum(line.startswith("epoch") for line in pair.lines[victim])
        results = Pair(folder, epochs).finish()
    return {
        "moment": round(seconds, 1),
        "victim": victim,
        "epochs_begun": reached,
        "survivor_exit_code": rest_code,
        "survivor_seconds": round(rest_seconds, 1),
        "survivor_hung": hung,
        "reason": next((reason for reason in REASONS if reason in said), None),
        "finished": [result["epochs"] for result in results],
        "equal": results[0]["weights"] == results[1]["weights"],
        "finite": all(abs(value) < float("inf") for value in results[0]["weights"]),
    }


def is_right(result: dict[str, Any], epochs: int) -> bool:
    """Returns whether a disturbed run ended as it must; a finished one has nothing to explain."""
    ended = not result["survivor_hung"] and (
        result["reason"] is not None or result["survivor_exit_code"] == 0
    )
    return bool(
        ended and result["finished"] == [epochs] * 2 and result["equal"] and result["finite"]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Pair(folder, args.epochs)
        undisturbed.finish()
        duration = time.monotonic() - undisturbed.begun
    draw = random.Random(args.seed)
    results = []
    for _ in range(args.kills):
        result = disturb(draw.uniform(0, duration), draw.randrange(2), args.epochs)
        results.append({**result, "right": is_right(result, args.epochs)})
        sys.stdout.write(json.dumps(results[-1]) + "\n")
        sys.stdout.flush()
    header = ("killed after", "worker", "epochs", "other ended after", "it said", "restart")
    rows = [
        (
            f"{one['moment']} s",
            str(one["victim"]),
            str(one["epochs_begun"]),
            f"{one['survivor_seconds']} s",
            one["reason"] or f"exit code {one['survivor_exit_code']}",
            "right" if one["right"] else "WRONG",
        )
        for one in results
    ]
    report.show(report.rows_table(f"An undisturbed run takes {duration:.0f} s", header, rows))
    if args.json:
        args.json.write_text(json.dumps({"duration": duration, "kills": results}, indent=2))
    return 0 if all(one["right"] for one in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
