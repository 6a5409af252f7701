"""The largest batch is found with few tries, and proven."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit.preflight.search import Try, find_largest_batch

MEMORY = 1_000_000


def search(needed, first, **limits):
    def ask(rows):
        return Try(rows, int(needed(rows)), needed(rows) <= MEMORY)

    return find_largest_batch(ask, MEMORY, ask(first), **limits)


@given(fixed=st.integers(0, 900_000), per_row=st.integers(10, 20_000), first=st.integers(1, 4_000))
def test_where_memory_is_linear_the_limit_is_proven_within_ten_tries(fixed, per_row, first):
    found = search(lambda rows: fixed + per_row * rows, first)

    limit = (MEMORY - fixed) // per_row
    if limit >= 8 and found.rows % 8 == 0:
        assert found.rows <= limit < found.refused and found.refused - found.rows <= 8
        assert found.is_proven
    elif limit < 8:
        assert found.rows == max([rows for rows in (4, 2, 1, first) if rows <= limit], default=0)
        assert found.rows < found.refused <= 8
    assert len(found.tries) <= 12


def test_where_the_compiler_trades_time_for_memory_the_limit_is_proven_still():
    found = search(lambda rows: min(100_000 + 9_000 * rows, 990_000 + rows), 304)
    assert found.rows <= 10_000 and found.is_proven and len(found.tries) <= 12


@pytest.mark.parametrize(("per_row", "rows"), [(400_000, 2), (2_000_000, 0), (900_000, 1)])
def test_few_rows_are_tried_where_eight_do_not_fit(per_row, rows):
    assert search(lambda count: per_row * count, 64).rows == rows


def test_the_data_bounds_the_search():
    found = search(lambda rows: rows, 128, most_rows=1000)
    assert found.rows == 1000 and not found.is_proven
    assert search(lambda rows: 200_000 * rows, 8, most_rows=3).rows == 2
