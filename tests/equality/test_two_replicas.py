"""Two replicas give the weights, losses and metrics of one device, in float64: every cell."""

from __future__ import annotations

import pytest

from tests.equality.cells import DEFAULT_REDUCTION, ON_TWO, TOLERANCE, Cell
from tests.equality.runner import run

# With TensorFlow's own reduction, stock Keras cannot fuse steps.
CELLS = (*ON_TWO, Cell("clipping", DEFAULT_REDUCTION, 3, "uneven"))


@pytest.fixture(scope="module")
def outcomes():
    return run(CELLS)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_replicas_equal_one_device(cell, outcomes):
    assert outcomes[cell].get("gap", outcomes[cell]) < TOLERANCE["float64"]
