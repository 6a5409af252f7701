"""One, four and eight replicas and two workers equal one device, in float64: every pair."""

from __future__ import annotations

import itertools

import pytest

from tests.equality.cells import EVERY, ON_TWO, PAIRWISE, TOLERANCE, Cell
from tests.equality.runner import run


@pytest.fixture(scope="module")
def outcomes():
    return run(PAIRWISE)


@pytest.mark.slow
@pytest.mark.parametrize("cell", PAIRWISE, ids=str)
def test_other_strategies_equal_one_device(cell, outcomes):
    assert outcomes[cell].get("gap", outcomes[cell]) < TOLERANCE["float64"]


@pytest.mark.parametrize("axes", tuple(itertools.combinations(Cell._fields, 2)), ids=str)
def test_every_pair_of_values_meets_in_a_cell(axes):
    def pairs(cells):
        return {tuple(getattr(cell, axis) for axis in axes) for cell in cells}

    assert pairs(EVERY) == pairs((*ON_TWO, *PAIRWISE))
