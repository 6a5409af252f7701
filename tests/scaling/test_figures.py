"""Speed-up and efficiency by hand, and a verdict for each cause."""

import json

import pytest

from keras_tpu_kit.scaling.figures import HEADER, Measured, Scaling


def measured(count, rate, mode="weak", **facts):
    return Measured(
        count=count, mode=mode, global_batch_size=64 * count, samples_per_second=rate, **facts
    )


# Three rounds on a machine that becomes half as fast after the first.
DRIFTING = Scaling(
    tuple(
        measured(count, rate / slow)
        for slow in (1, 2, 2)
        for count, rate in ((1, 1000.0), (2, 1900.0), (4, 3800.0))
    )
)


def test_each_round_is_compared_with_itself():
    assert DRIFTING.speedup(2, "weak") == pytest.approx(1.9)
    assert DRIFTING.efficiency(4, "weak") == pytest.approx(0.95)
    assert DRIFTING.rate(1, "weak") == 500.0
    assert DRIFTING.rates(2, "weak") == (1900.0, 950.0, 950.0)


def test_counts_and_modes_are_those_that_were_measured():
    assert DRIFTING.counts == (1, 2, 4)
    assert DRIFTING.modes == ("weak",)


@pytest.mark.parametrize(
    ("rate", "mode", "facts", "verdict"),
    [
        (190.0, "weak", {"input_wait_share": 0.9}, "scales"),
        (120.0, "weak", {"input_wait_share": 0.3}, "input"),
        (120.0, "strong", {"input_wait_share": 0.3}, "input"),
        (120.0, "weak", {"processors": 1}, "processors"),
        (120.0, "strong", {"processors": 2}, "batch too small"),
        (120.0, "weak", {"processors": 2, "input_wait_share": 0.1}, "reduction"),
        (120.0, "weak", {}, "reduction"),
    ],
)
def test_what_holds_it_back_is_named(rate, mode, facts, verdict):
    scaling = Scaling((measured(1, 100.0, mode), measured(2, rate, mode, **facts)))
    assert scaling.verdict(2, mode) == verdict


def test_the_table_stands_beside_the_published_figures():
    rows = DRIFTING.rows()
    assert [row[0] for row in rows] == ["weak x1", "weak x2", "weak x4"]
    assert all(len(row) == len(HEADER) for row in rows)
    two = rows[1]
    assert two[1:7] == ("128", "950", "950 to 1,900", "1.90x", "2.0x", "95%")
    assert rows[0][5] == rows[0][7] == ""


def test_all_figures_are_json():
    document = json.loads(json.dumps(DRIFTING.to_dict()))
    assert document["series"][2]["published_speedup"] == 3.8
    assert len(document["measured"]) == 9
