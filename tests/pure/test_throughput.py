import dataclasses
import json
import math

import pytest

from keras_tpu_kit import CHIPS, Chip, Throughput
from keras_tpu_kit.throughput import describe_input_wait, total

# 20 executions of 10 steps of 64 rows: 19 of 0.1 s, one of 0.5 s.
RUN = Throughput(
    num_replicas=4,
    rows=20 * 10 * 64,
    steps=200,
    execution_seconds=(0.1,) * 19 + (0.5,),
    first_execution_seconds=3.0,
    input_wait_seconds=0.24,
    flops_per_step=6e6,
    peak_flops_per_replica=1e9,
)


def test_rates_are_rows_over_steady_seconds():
    assert RUN.seconds == pytest.approx(2.4)
    assert RUN.samples_per_second == pytest.approx(12_800 / 2.4)
    assert RUN.samples_per_second_per_replica == pytest.approx(12_800 / 2.4 / 4)
    assert RUN.step_seconds == pytest.approx(0.012)


def test_percentiles_are_those_of_the_executions():
    assert RUN.execution_percentile(50) == pytest.approx(0.1)
    # Linear interpolation between the 19th and 20th of 20: index 0.95 * 19 = 18.05.
    assert RUN.execution_percentile(95) == pytest.approx(0.1 + 0.05 * 0.4)


def test_mfu_is_the_share_of_what_all_replicas_could_do():
    assert RUN.mfu == pytest.approx(6e6 / (4 * 1e9 * 0.012))


def test_what_is_unknown_stays_unknown():
    bare = Throughput(num_replicas=1, rows=10, steps=1, execution_seconds=(1.0,))
    assert bare.mfu is None
    assert bare.input_wait_share is None
    assert describe_input_wait(bare.input_wait_share) == "unknown"


def test_before_the_first_steady_execution_there_is_no_rate():
    empty = Throughput(
        num_replicas=2,
        rows=0,
        steps=0,
        execution_seconds=(),
        flops_per_step=1.0,
        peak_flops_per_replica=1.0,
        input_wait_seconds=0.0,
    )
    rates = empty.samples_per_second, empty.step_seconds, empty.execution_percentile(50)
    assert all(math.isnan(rate) for rate in rates)
    assert empty.mfu is None
    assert empty.input_wait_share is None


@pytest.mark.parametrize(
    ("share", "word"),
    [(0.0, "fine"), (0.049, "fine"), (0.05, "moderate"), (0.2, "moderate"), (0.21, "input-bound")],
)
def test_the_share_of_waiting_is_judged_by_the_profiler_s_thresholds(share, word):
    assert word in describe_input_wait(share)


def test_waiting_is_a_share_of_the_same_seconds():
    assert RUN.input_wait_share == pytest.approx(0.1)


def test_efficiency_is_one_where_n_replicas_are_n_times_as_fast():
    assert RUN.scaling_efficiency(RUN.samples_per_second / 4) == pytest.approx(1.0)
    assert RUN.scaling_efficiency(RUN.samples_per_second) == pytest.approx(0.25)


def test_two_replicas_share_a_v3_chip_and_the_table_can_be_added_to(monkeypatch):
    assert CHIPS["TPU v3"].flops_per_replica == 123e12 / 2
    assert CHIPS["TPU v4"].flops_per_replica == 275e12
    monkeypatch.setitem(CHIPS, "MI300X", Chip("MI300X", 1307, 192))
    assert CHIPS["MI300X"].flops_per_replica == 1307e12


def test_all_figures_are_json():
    figures = json.loads(json.dumps(RUN.to_dict()))
    assert figures["samples_per_second"] == RUN.samples_per_second
    assert figures["executions"] == 20


def test_epochs_add_up_and_what_one_did_not_measure_is_unknown():
    first = dataclasses.replace(RUN, first_execution_seconds=2.0, input_wait_seconds=0.1)
    second = dataclasses.replace(RUN, first_execution_seconds=None, input_wait_seconds=0.3)
    both = total([first, second])
    assert both.rows == 2 * RUN.rows and both.steps == 2 * RUN.steps
    assert both.execution_seconds == RUN.execution_seconds * 2
    assert both.first_execution_seconds == 2.0
    assert both.input_wait_seconds == pytest.approx(0.4)
    blind = dataclasses.replace(second, rows=None, input_wait_seconds=None)
    assert total([first, blind]).rows is None and total([first, blind]).input_wait_seconds is None
