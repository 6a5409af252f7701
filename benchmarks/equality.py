"""Runs the whole matrix of equality and writes docs/equality.md.

    python benchmarks/equality.py [--strategies "1;2"] [--seconds 1800]

Each cell is two epochs of a small model, compared with stock Keras on one device: the kit in
float64 and float32, and stock Keras in float64. It takes long; the largest strategies most.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.equality.cells import EVERY, STRATEGIES, TOLERANCE, Cell  # noqa: E402
from tests.equality.runner import run  # noqa: E402

Results = dict[tuple[str, str], dict[Cell, dict[str, Any]]]
_COLUMNS = (("kit", "float64"), ("kit", "float32"), ("stock", "float64"))
_REFUSED = (  # What, why, and the heading in docs/errors.md.
    (
        "a Python generator on several replicas",
        "TensorFlow gives each replica a thread of its own, and batches are lost",
        "generator-loses-data",
    ),
    (
        "sparse or ragged columns",
        "TensorFlow cannot cut them between replicas",
        "input-not-dense",
    ),
    (
        "a loss that returns one number which is not the mean over rows",
        "the numbers of several replicas do not make that of the whole batch",
        "scalar-loss-not-mean",
    ),
    (
        "a step of your own, or a loss that a layer adds, which sums over its rows",
        "each replica's sum would be taken for a mean",
        "own-step-not-mean",
    ),
    (
        "a metric of your own that is no sum over rows, nor a quotient of such sums",
        "replicas add what metrics count",
        "metric-not-sum",
    ),
    (
        "a custom step that divides by the number of replicas itself",
        "it would be divided twice",
        "step-scales-itself",
    ),
    (
        "a custom step that clips gradients by their length itself",
        "each replica's part would be clipped, not the sum",
        "step-clips-itself",
    ),
    (
        "a custom step whose loss the optimizer does not scale, with synchronized "
        "BatchNormalization and uneven batches",
        "a replica's part cannot be weighed after the layer has met the others",
        "loss-not-scaled",
    ),
    (
        "variables made outside the scope",
        "they are on one device only",
        "variable-outside-scope",
    ),
    (
        "`jit_compile=True` on several replicas",
        "TensorFlow's collectives cannot be compiled",
        "jit-compile",
    ),
    (
        "`train_on_batch` and `test_on_batch` on several workers",
        "nothing cuts the batch between processes",
        "on-batch-several-workers",
    ),
    (
        "on a TPU, training batches of several sizes",
        "its shapes are static",
        "batch-not-static",
    ),
)
_HEAD = """# Equality

Every cell trains a small model for two epochs on global batches of 16 rows and compares it with
stock Keras on one device, which sees the same batches. The number is the largest difference of
any weight, logged loss or metric, evaluation or prediction, relative to the largest value in its
tensor. The bounds are {float64:g} in float64 and {float32:g} in float32.

Replicas are logical CPU devices, workers are processes on one machine. Nothing here was run on a
GPU or a TPU. Dropout and augmentation are left out: there replicas differ on purpose.
BatchNormalization without `synchronized=True` is left out by design as well: it normalises over
one replica's rows, so its weights are not those of one device, and the report at the start says so.

{told}

## Refused by design

What cannot be made equal is refused before the first step, with its reason:

| what | why | code |
|---|---|---|
{refused}

## How to read the tables

*rows*: "even" is two full batches; "uneven" has a third one that the replicas cannot share evenly;
"fewer than replicas" ends with a batch that leaves a replica without a row. *steps* are
`steps_per_execution`; three do not divide every epoch here. Where stock Keras stops, its message
stands in place of a number.
"""


def main() -> None:
    """Runs what the arguments name and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategies", default=";".join(STRATEGIES), help="separated by ';'")
    parser.add_argument("--seconds", type=float, default=1800, help="limit of each process")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "equality.md")
    parser.add_argument("--results", type=pathlib.Path, help="keeps results; what is there is kept")
    arguments = parser.parse_args()
    chosen = arguments.strategies.split(";")
    cells = [cell for cell in EVERY if cell.strategy in chosen]
    results: Results = {column: {} for column in _COLUMNS}
    if arguments.results and arguments.results.exists():
        for side, dtype, cell, told in json.loads(arguments.results.read_text()):
            results[side, dtype][Cell(*cell)] = told
    for (side, dtype), known in results.items():
        for strategy in chosen:
            missing = [cell for cell in cells if cell.strategy == strategy and cell not in known]
            known |= run(missing, dtype=dtype, side=side, seconds=arguments.seconds)
            if arguments.results:
                arguments.results.write_text(json.dumps(_listed(results)))
    arguments.output.write_text(_page(cells, results), encoding="utf-8")
    print(_summary(cells, results))


def _listed(results: Results) -> list[Any]:
    return [
        [*column, list(cell), told]
        for column, found in results.items()
        for cell, told in found.items()
    ]


def _page(cells: list[Cell], results: Results) -> str:
    refused = "\n".join(
        f"| {what} | {why} | [{code}](errors.md#{code}) |" for what, why, code in _REFUSED
    )
    lines = [_HEAD.format(**TOLERANCE, told=_summary(cells, results), refused=refused)]
    for strategy in dict.fromkeys(cell.strategy for cell in cells):
        replicas = strategy if "workers" in strategy else f"{strategy} replicas"
        lines += [f"## {replicas.replace('1 replicas', 'One device, replicated')}", ""]
        lines += ["| model | steps | rows | kit, float64 | kit, float32 | stock, float64 |"]
        lines += ["|---|---|---|---|---|---|"]
        for cell in (each for each in cells if each.strategy == strategy):
            told = " | ".join(_told(results[column][cell]) for column in _COLUMNS)
            lines.append(f"| {cell.model} | {cell.steps} | {cell.rows} | {told} |")
        lines.append("")
    return "\n".join(lines)


def _told(outcome: Mapping[str, Any]) -> str:
    if "gap" in outcome:
        return f"{outcome['gap']:.0e}"
    return re.sub(r"[|`*_<>\[\]{}]", " ", outcome["error"])[:80]


def _summary(cells: list[Cell], results: Results) -> str:
    import keras
    import tensorflow as tf

    held = {
        f"{side} in {dtype}": sum(found[cell].get("gap", 1.0) < TOLERANCE[dtype] for cell in cells)
        for (side, dtype), found in results.items()
    }
    counts = ", ".join(f"{name} {count}" for name, count in held.items())
    left_out = [each for each in STRATEGIES if each not in {cell.strategy for cell in cells}]
    elsewhere = (
        f" Left out of this run: {', '.join(left_out)}; of these `tests/equality/` holds one cell "
        "for each pair of values, in float64."
        if left_out
        else ""
    )
    return (
        f"Run on {datetime.date.today()} with TensorFlow {tf.__version__} and Keras "
        f"{keras.__version__}. Of {len(cells)} cells these hold their bound: {counts}.{elsewhere}"
    )


if __name__ == "__main__":
    main()
