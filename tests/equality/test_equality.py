"""Several replicas give the weights, losses and metrics of one device, in float64."""

from __future__ import annotations

import pytest

from tests.equality.cells import ON_TWO, PAIRWISE, TOLERANCE, WORKERS
from tests.equality.runner import run

CELLS = (*ON_TWO, *PAIRWISE)


@pytest.fixture(scope="module")
def outcomes():
    return run(CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_replicas_equal_one_device(cell, outcomes):
    assert outcomes[cell].get("gap", cell) < TOLERANCE["float64"]


def test_the_matrix_meets_every_pair_of_model_and_strategy_values():
    assert {cell.strategy for cell in CELLS} == {"1", "2", "4", "8", WORKERS}
    assert {(c.strategy, c.rows) for c in PAIRWISE} >= {("4", "even"), ("8", "uneven")}
