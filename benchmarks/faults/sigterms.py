"""Sends SIGTERM at random moments: does the training end where an undisturbed one does?

    python benchmarks/faults/sigterms.py [--stops 10] [--workers 2] [--seed 1] [--json stops.json]

`keras-tpu-kit launch` runs the training with `StopOnPreemption`. After SIGTERM it has to exit with
code 75 (or, before training has begun, with that of the signal), and started again and again it
has to end with exactly the weights of a run that was left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from keras_tpu_kit import report

JOB = str(pathlib.Path(__file__).with_name("job.py"))
ROOT = str(pathlib.Path(__file__).parents[2])
PATIENCE = 900.0  # only bounds a hang of the script itself
RESUMABLE, NOT_BEGUN = 75, 128 + signal.SIGTERM


def run(folder: str, workers: int, epochs: int, stop_after: float | None) -> tuple[int, str, float]:
    """Returns the exit code, the output and the seconds of one run, told to stop or not."""
    argv = [sys.executable, "-m", "keras_tpu_kit", "launch", "--workers", str(workers), JOB, folder]
    argv += ["--epochs", str(epochs), "--save", "preemption"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONPATH": ROOT}
    begun = time.monotonic()
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as launcher:
        try:
            out, _ = launcher.communicate(timeout=stop_after or PATIENCE)
        except subprocess.TimeoutExpired:
            launcher.send_signal(signal.SIGTERM)
            out, _ = launcher.communicate(timeout=PATIENCE)
    return launcher.returncode, out, time.monotonic() - begun


def weights_of(output: str) -> list[list[float]]:
    """Returns the weights that each worker ended with."""
    said = [line.partition("] ")[2] for line in output.splitlines()]
    return [json.loads(line)["weights"] for line in said if line.startswith('{"epochs"')]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        code, output, duration = run(folder, args.workers, args.epochs, None)
    if code:
        raise SystemExit(output)
    expected = weights_of(output)
    draw = random.Random(args.seed)
    results: list[dict[str, Any]] = []
    for _ in range(args.stops):
        moment = draw.uniform(0, duration)
        with tempfile.TemporaryDirectory() as folder:
            code, output, seconds = run(folder, args.workers, args.epochs, moment)
            begun = output.count("epoch ")
            again, final, _ = (
                (code, output, 0.0) if code == 0 else run(folder, args.workers, args.epochs, None)
            )
        result = {
            "moment": round(moment, 1),
            "epochs_begun": begun // args.workers,
            "exit_code": code,
            "seconds_to_stop": round(max(0.0, seconds - moment), 1),
            "restart_exit_code": again,
            "right": code in (0, RESUMABLE, NOT_BEGUN)
            and again == 0
            and weights_of(final) == expected,
        }
        results.append(result)
        sys.stdout.write(json.dumps(result) + "\n")
        if not result["right"]:
            sys.stdout.write(f"{output}\n--- restart ---\n{final}\n")
        sys.stdout.flush()
    header = ("stopped after", "epochs", "exit code", "took to stop", "ends as undisturbed")
    rows = [
        (
            f"{one['moment']} s",
            str(one["epochs_begun"]),
            str(one["exit_code"]),
            f"{one['seconds_to_stop']} s",
            "yes" if one["right"] else "NO",
        )
        for one in results
    ]
    title = f"An undisturbed run on {args.workers} workers takes {duration:.0f} s"
    report.show(report.rows_table(title, header, rows))
    if args.json:
        args.json.write_text(json.dumps({"duration": duration, "stops": results}, indent=2))
    return 0 if all(one["right"] for one in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
