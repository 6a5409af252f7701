"""Runs trainings of several counts in turn, each with its own share of the processors."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from keras_tpu_kit import processes
from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import Finding, HardwareError, KitError
from keras_tpu_kit.scaling.figures import Measured, Mode, Scaling


def measure_series(
    target: str,
    *,
    counts: Sequence[int],
    per_replica_batch_size: int,
    modes: Sequence[Mode] = ("weak", "strong"),
    rounds: int = 3,
    epochs: int = 3,
    workers: bool = False,
    accelerator: str = "cpu",
    timeout: float = 600.0,
    progress: Callable[[str], None] = lambda text: None,
) -> Scaling:
    """Returns the rates of one and of several replicas, measured in turn.

    Args:
        target: `"module:name"` of a `ModelFactory` with a `data` hook.
        counts: Replicas, or workers; 1 is always among them.
        per_replica_batch_size: Rows of one step on one replica in weak scaling; times the
            largest count, rows of one step in strong scaling.
        modes: `"weak"`, `"strong"` or both.
        rounds: How often each is trained; in each round one after another.
        epochs: Epochs of each training; the first execution, which compiles, does not count.
        workers: Whether `counts` are processes of one replica each, not replicas of one.
        accelerator: `"cpu"` for logical CPU devices, or `"gpu"`.
        timeout: Seconds that one training may take.
        progress: Called with a line of text before each training.

    Raises:
        HardwareError: If a training fails, takes too long, or is too short to be measured.
        KitError: If the target cannot be trained so, for the reason that it would give itself.
    """
    counts = sorted({1, *counts})
    strong_batch = per_replica_batch_size * counts[-1]
    measured = []
    for turn in range(rounds):
        for mode in modes:
            for count in counts:
                batch = per_replica_batch_size * count if mode == "weak" else strong_batch
                progress(f"round {turn + 1} of {rounds}: {mode} scaling on {count}, batch {batch}")
                figures = _train(
                    target, count, counts[-1], batch, epochs, workers, accelerator, timeout
                )
                measured.append(
                    Measured(
                        count=count,
                        mode=mode,
                        global_batch_size=batch,
                        samples_per_second=figures["samples_per_second"],
                        input_wait_share=figures["input_wait_share"],
                        processors=len(_share(0, count, counts[-1])) or None
                        if accelerator == "cpu"
                        else None,
                    )
                )
    return Scaling(tuple(measured))


def _train(
    target: str,
    count: int,
    most: int,
    batch: int,
    epochs: int,
    workers: bool,
    accelerator: str,
    timeout: float,
) -> dict[str, Any]:
    """Returns the figures of one training, which one or several processes do."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "figures.json"
        members = count if workers else 1
        ports = processes.free_ports(members)
        addresses = tuple(f"127.0.0.1:{port}" for port in ports)
        commands = []
        for index in range(members):
            share = _share(index, count if members == 1 else 1, most)
            env = {"TF_CPP_MIN_LOG_LEVEL": "2"}
            if accelerator == "cpu":
                threads = _threads(most)
                env["TF_NUM_INTRAOP_THREADS"] = str(threads)
                env["TF_NUM_INTEROP_THREADS"] = str(max(1, len(share)) * threads)
            if members > 1:
                env["TF_CONFIG"] = Cluster(addresses, index).to_tf_config()
            argv = [
                *(sys.executable, "-m", "keras_tpu_kit.scaling.measurement", target),
                *("--replicas", str(1 if workers else count)),
                *("--batch", str(batch), "--epochs", str(epochs)),
                *("--accelerator", accelerator, "--out", str(out)),
                *("--processors", ",".join(map(str, share)) if accelerator == "cpu" else ""),
            ]
            commands.append(processes.Command(argv, env=env))
        lines: list[str] = []
        outcome = processes.run_group(commands, write=lines.append, timeout=timeout)
        if not out.exists():
            raise HardwareError(_failed(count, outcome, lines))
        figures = dict(json.loads(out.read_text()))
        if "refused" in figures:
            raise KitError(Finding.from_dict(figures["refused"]))
        if figures["samples_per_second"] is None:
            raise HardwareError(_too_short(count, batch))
        return figures


def _threads(most: int) -> int:
    """Returns the threads of one replica, so that the largest count fits the processors."""
    return max(1, len(_processors()) // most)


def _share(index: int, count: int, most: int) -> list[int]:
    """Returns the processors of the `index`th process, which holds `count` replicas."""
    processors = _processors()
    if not processors:
        return []
    size = min(len(processors), count * _threads(most))
    first = index * size
    return [processors[place % len(processors)] for place in range(first, first + size)]


def _processors() -> list[int]:
    # Only Linux can bind processes to processors.
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _too_short(count: int, batch: int) -> Finding:
    return Finding(
        "scale-too-short",
        "error",
        what=f"The training on {count} with batches of {batch} ran one execution only.",
        why="The first execution compiles and does not count, so that there is nothing to measure.",
        fix="Pass more --epochs, a smaller --batch, or bring more rows in data().",
    )


def _failed(count: int, outcome: processes.Outcome, lines: Sequence[str]) -> Finding:
    reason = "took too long" if outcome.timed_out else processes.describe_exit(outcome.exit_code)
    said = " | ".join(line.strip() for line in lines[-3:] if line.strip()) or "nothing"
    return Finding(
        "scale-failed",
        "error",
        what=f"The training on {count} {reason}; its last words were: {said}.",
        why="Without its rate there is nothing to compare.",
        fix="Run your factory's fit by itself first, or pass a longer --timeout.",
    )
