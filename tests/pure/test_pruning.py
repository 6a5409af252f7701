"""When a trial has no hope, said with numbers."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit.checks.pruning import best, falls_behind_median, has_stalled

pytestmark = pytest.mark.pure

UP = [{0: 0.5, 1: 0.6, 2: 0.7}, {0: 0.6, 1: 0.7, 2: 0.8}, {0: 0.7, 1: 0.8, 2: 0.9}]


@pytest.mark.parametrize(
    ("own", "others", "direction", "warmup_epochs", "min_trials", "ends"),
    [
        ({0: 0.1}, UP, "max", 2, 3, False),  # still warming up
        ({0: 0.1, 1: 0.2}, UP, "max", 2, 3, True),
        ({0: 0.1, 1: 0.7}, UP, "max", 2, 3, False),  # at the median
        ({0: 0.1, 1: 0.69}, UP, "max", 2, 3, True),
        ({0: 0.9, 1: 0.1}, UP, "max", 2, 3, False),  # its best epoch counts, not its last
        ({0: 0.1, 1: 0.2}, UP[:2], "max", 2, 3, False),  # too few to judge by
        ({0: 0.9, 1: 0.8}, UP, "min", 2, 3, True),
        ({0: 0.4, 1: 0.9}, UP, "min", 2, 3, False),
        ({0: 0.1, 1: 0.2, 2: 0.3, 3: 0.4}, UP, "max", 2, 1, False),  # nobody came as far
        ({0: 0.1, 1: 0.2}, [{4: 0.9, 5: 0.9}] * 3, "max", 2, 3, False),  # began later
        ({}, UP, "max", 1, 1, False),
    ],
)
def test_median_rule(own, others, direction, warmup_epochs, min_trials, ends):
    assert (
        falls_behind_median(
            own, others, direction, warmup_epochs=warmup_epochs, min_trials=min_trials
        )
        is ends
    )


@pytest.mark.parametrize(
    ("values", "direction", "patience", "min_delta", "warmup_epochs", "ends"),
    [
        ([0.5, 0.6, 0.7], "max", 1, 0.0, 0, False),
        ([0.5, 0.6, 0.6], "max", 1, 0.0, 0, True),  # no better is not better
        ([0.5, 0.6, 0.6], "max", 2, 0.0, 0, False),
        ([0.5, 0.7, 0.75], "max", 1, 0.1, 0, True),
        ([0.5, 0.4, 0.45, 0.41], "min", 2, 0.0, 0, True),
        ([0.5, 0.4, 0.45, 0.39], "min", 2, 0.0, 0, False),
        ([0.5, 0.4, 0.3], "max", 1, 0.0, 4, False),
        ([], "max", 1, 0.0, 0, False),
    ],
)
def test_patience_rule(values, direction, patience, min_delta, warmup_epochs, ends):
    own = dict(enumerate(values))
    assert (
        has_stalled(
            own,
            direction,
            patience=patience,
            min_delta=min_delta,
            warmup_epochs=warmup_epochs,
        )
        is ends
    )


curves = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(lambda v: dict(enumerate(v)))


@given(own=curves, others=st.lists(curves, min_size=3, max_size=9))
def test_median_rule_is_the_same_upside_down(own, others):
    def negated(values):
        return {epoch: -value for epoch, value in values.items()}

    up = falls_behind_median(own, others, "max", warmup_epochs=1, min_trials=3)
    down = falls_behind_median(
        negated(own), map(negated, others), "min", warmup_epochs=1, min_trials=3
    )
    assert up is down
    assert up is (best(own, "max") < statistics.median(best(each, "max") for each in others))


@given(own=curves, others=st.lists(curves, min_size=3, max_size=9))
def test_the_best_trial_is_never_ended(own, others):
    own[1] = 2.0
    assert not falls_behind_median(own, others, "max", warmup_epochs=1, min_trials=1)
