"""Runs cells of the matrix in a process of its own and prints each outcome as a line of JSON.

    python -m tests.equality.runner float64 kit '[["mlp", "2", 1, "even"]]'

The process is its own because floatx, logical devices and workers are set once in each.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from keras_tpu_kit.errors import KitError
from keras_tpu_kit.processes import free_ports
from tests.equality.cells import BATCH, DEFAULT_REDUCTION, WORKERS, Cell, num_rows

_EPOCHS = 2
_ROWS_EVALUATED = 7


def run(
    cells: Iterable[Cell], dtype: str = "float64", side: str = "kit", seconds: float = 900
) -> dict[Cell, dict[str, Any]]:
    """Returns the outcome of each cell, run in new processes: one for each strategy.

    Stock Keras gets one for each of its models as well: after an error TensorFlow's collectives
    fail for all that follows in the process.

    Args:
        cells: What to run.
        dtype: The floatx of the run, `"float64"` or `"float32"`.
        side: `"kit"` for replicated models, `"stock"` for Keras as it is.
        seconds: Time limit of each process.

    Each outcome holds `gap`, the largest relative difference to one device, or `error`.
    """
    outcomes: dict[Cell, dict[str, Any]] = {}
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.strategy, cell.model if side == "stock" else ""), []).append(cell)
    for (strategy, _), chosen in sorted(groups.items()):
        lines, end = _lines(_start(chosen, strategy, dtype, side), seconds)
        for line in lines:
            told = json.loads(line)
            outcomes[Cell(*told.pop("cell"))] = told
        for cell in chosen:
            outcomes.setdefault(cell, {"error": end})
    return outcomes


def _start(cells: list[Cell], strategy: str, dtype: str, side: str) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.equality.runner", dtype, side, json.dumps(cells)]
    environments: list[dict[str, str]] = [{}]
    if strategy == WORKERS:
        ports = free_ports(2)
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        environments = [
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}})}
            for i in range(2)
        ]
    return [
        subprocess.Popen(
            command,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"} | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for extra in environments
    ]


def _lines(processes: list[subprocess.Popen[str]], seconds: float) -> tuple[list[str], str]:
    """Returns the first process's lines of JSON, it being the chief, and how it ended."""
    end = time.monotonic() + seconds
    outputs, is_late = [], False
    try:
        for process in processes:
            try:
                outputs.append(process.communicate(timeout=max(1.0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                is_late = True
                process.kill()
                outputs.append(process.communicate())
    finally:
        for process in processes:
            process.kill()
    out, err = outputs[0]
    if is_late:
        how = f"did not end within {seconds:.0f} s"
    else:
        last = (err.strip().splitlines() or [""])[-1]
        how = f"the process ended with {processes[0].returncode}: {last[:200]}"
        if processes[0].returncode:
            sys.stderr.write(err[-4000:])
    return [line for line in out.splitlines() if line.startswith("{")], how


def _main(dtype: str, side: str, text: str) -> None:
    cells = [Cell(*values) for values in json.loads(text)]
    strategy = _strategy(cells[0].strategy)
    import keras

    keras.config.set_floatx(dtype)
    for name, group in itertools.groupby(sorted(cells), key=lambda cell: cell.model):
        _run_model(name, list(group), strategy, side)
    # A worker that leaves in the usual way waits for the other's collectives.
    sys.stdout.flush()
    os._exit(0)


def _strategy(name: str) -> Any:
    import tensorflow as tf

    if name == WORKERS:
        return tf.distribute.MultiWorkerMirroredStrategy()
    from tests.replicas import replicas

    if name == DEFAULT_REDUCTION:
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    return tf.distribute.get_strategy() if name == "1" else replicas(int(name))


def _run_model(name: str, cells: list[Cell], strategy: Any, side: str) -> None:
    """Runs one model's cells; a model is made once for each number of fused steps."""
    from tests.equality import models

    count = strategy.num_replicas_in_sync
    one = _Subject(models.make(name), name)
    truths = {rows: one.train(num_rows(rows, count)) for rows in {cell.rows for cell in cells}}
    for steps, group in itertools.groupby(
        sorted(cells, key=lambda cell: cell.steps), key=lambda cell: cell.steps
    ):
        subject = None
        for cell in group:
            try:
                subject = subject or _Subject(_make(name, strategy, steps, side), name)
                told = {"gap": _gap(truths[cell.rows], subject.train(num_rows(cell.rows, count)))}
            except KitError as refusal:
                told = {"error": refusal.finding.code}
            except Exception as error:  # Whatever stock Keras says is its result.
                if side == "kit":
                    raise
                told = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
                subject = None
            sys.stdout.write(json.dumps({"cell": list(cell), **told}) + "\n")
            sys.stdout.flush()


def _make(name: str, strategy: Any, steps: int, side: str) -> Any:
    import contextlib

    from keras_tpu_kit.replication import replicate
    from tests.equality import models

    in_scope = strategy.num_replicas_in_sync > 1
    with strategy.scope() if in_scope else contextlib.nullcontext():
        model = models.make(name)
    model.steps_per_execution = steps
    return replicate(model) if side == "kit" else model


class _Subject:
    """A model that is trained again and again from the same start."""

    def __init__(self, model: Any, name: str) -> None:
        self._model, self._name = model, name
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
        self._variables = [*model.weights, *model.optimizer.variables]
        self._start = [variable.numpy() for variable in self._variables]

    def train(self, rows: int) -> list[Any]:
        """Returns all that two epochs tell: weights, history, evaluation, predictions."""
        import numpy as np

        from tests.equality import models

        for variable, value in zip(self._variables, self._start, strict=True):
            variable.assign(value)
        x, y, more = models.arrays(self._name, rows)
        model = self._model
        history = model.fit(
            x, y, batch_size=BATCH, epochs=_EPOCHS, shuffle=False, verbose=0, **more
        ).history
        few_x, few_y, _ = models.arrays(self._name, _ROWS_EVALUATED)
        told = model.evaluate(few_x, few_y, batch_size=4, verbose=0, return_dict=True)
        predicted = model.predict(few_x, batch_size=4, verbose=0)
        leaves = predicted.values() if isinstance(predicted, dict) else [predicted]
        return [
            *model.get_weights(),
            *(np.asarray(history[key]) for key in sorted(history)),
            *(np.asarray(told[key]) for key in sorted(told)),
            *leaves,
        ]


def _gap(truth: list[Any], found: list[Any]) -> float:
    """Returns the largest difference of any tensor, relative to its largest value."""
    import numpy as np

    gaps = []
    for a, b in zip(truth, found, strict=True):
        if a.shape != b.shape or not np.isfinite(b).all():
            return float("inf")
        gaps.append(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30))
    return float(max(gaps))


if __name__ == "__main__":
    _main(*sys.argv[1:])
