"""The matrix of equality, as data: every model on every strategy, fused or not, on any rows.

A cell holds if two epochs on several replicas end with the weights, losses and metrics of stock
Keras on one device, which sees the same global batches.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

MODELS = (
    "mlp",
    "cnn with synchronized BatchNormalization",
    "lstm",
    "multi-output",
    "scalar loss",
    "custom train_step",
    "sample_weight",
    "class_weight",
    "clipping",
    "accumulation",
)
WORKERS = "2 workers"
# TensorFlow's own reduction, which other strategies of a process disturb. Not in the matrix.
DEFAULT_REDUCTION = "2, default reduction"
STRATEGIES = ("1", "2", "4", "8", WORKERS)
# Steps in one execution; three do not divide every epoch below.
STEPS_PER_EXECUTION = (1, 3)
ROWS = ("even", "uneven", "fewer than replicas")
BATCH = 16

TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


class Cell(NamedTuple):
    """One comparison: a model, a strategy, steps in one execution, and how many rows."""

    model: str
    strategy: str
    steps: int
    rows: str

    def __str__(self) -> str:
        return f"{self.model}, {self.strategy}, {self.steps} steps, {self.rows}"


def num_rows(rows: str, replicas: int) -> int:
    """Returns the rows of an epoch of batches of 16.

    Two batches, or two and a short one that replicas cannot share evenly, or one and a last one
    that leaves at least one of several replicas without a row.
    """
    return {
        "even": 2 * BATCH,
        "uneven": 2 * BATCH + 2 * max(replicas, 2) + 1,
        "fewer than replicas": BATCH + max(replicas - 1, 1),
    }[rows]


EVERY = tuple(
    Cell(*values) for values in itertools.product(MODELS, STRATEGIES, STEPS_PER_EXECUTION, ROWS)
)
# One strategy in full, and of the rest a subset in which each pair of values meets.
ON_TWO = tuple(cell for cell in EVERY if cell.strategy == "2")
PAIRWISE = tuple(
    Cell(model, strategy, STEPS_PER_EXECUTION[(i + j) % 2], ROWS[(i + j) % 3])
    for i, model in enumerate(MODELS)
    for j, strategy in enumerate(each for each in STRATEGIES if each != "2")
)
