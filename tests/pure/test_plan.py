"""A plan in hand is a plan that works, however it was come by."""

import copy
import dataclasses
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit import BatchPlan, PlanError, Topology, plan_batches
from keras_tpu_kit.plan import largest_divisor, nearest_batch


def replicas(count, accelerator="gpu", workers=1):
    return Topology(accelerator=accelerator, num_replicas=count, num_workers=workers)


@st.composite
def plans(draw):
    workers = draw(st.integers(1, 3))
    topology = replicas(workers * draw(st.integers(1, 8)), workers=workers)
    size = draw(st.integers(1, 40))
    least = size * topology.num_replicas
    return BatchPlan(
        topology=topology,
        num_samples=draw(st.integers(least, least * 30)),
        per_replica_batch_size=size,
        num_validation_samples=draw(st.integers(0, 500)),
        max_steps_per_execution=draw(st.integers(1, 70)),
    )


@given(plans())
def test_every_row_is_trained_on_or_counted_as_dropped(plan):
    trained = plan.steps_per_epoch * plan.global_batch_size
    assert trained + plan.dropped_samples == plan.num_samples
    assert 0 <= plan.dropped_samples < plan.global_batch_size
    assert plan.steps_per_epoch >= 1


@given(plans())
def test_executions_fill_the_epoch_exactly(plan):
    assert plan.steps_per_epoch % plan.steps_per_execution == 0
    assert plan.steps_per_execution <= plan.max_steps_per_execution


@given(plans())
def test_validation_counts_every_row_and_only_its_last_batch_is_uneven(plan):
    batches = plan.validation_batches
    assert sum(batches) == plan.num_validation_samples
    assert all(0 < rows <= plan.global_batch_size for rows in batches)
    assert all(rows % plan.topology.num_replicas == 0 for rows in batches[:-1])
    assert plan.validation_steps == len(batches)


@given(plans())
def test_a_plan_survives_copy_pickle_json_and_replace(plan):
    assert copy.deepcopy(plan) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert BatchPlan.from_json(plan.to_json()) == plan
    assert BatchPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    smaller = dataclasses.replace(plan, per_replica_batch_size=1)
    assert smaller.global_batch_size == plan.topology.num_replicas
    assert smaller.steps_per_epoch % smaller.steps_per_execution == 0


@given(plans())
def test_the_workers_batches_add_up_to_the_global_one(plan):
    assert plan.worker_batch_size * plan.topology.num_workers == plan.global_batch_size


def test_the_tutorial_s_numbers():
    plan = plan_batches(replicas(8, "tpu"), num_samples=60_000, global_batch_size=1200)
    assert (plan.steps_per_epoch, plan.per_replica_batch_size, plan.dropped_samples) == (50, 150, 0)
    assert plan.fit_args() == {"steps_per_epoch": 50, "shuffle": False}
    by_steps = plan_batches(replicas(8, "tpu"), num_samples=60_000, steps_per_epoch=50)
    by_target = plan_batches(replicas(8, "tpu"), num_samples=60_000, target_batch_size=1200)
    by_replica = plan_batches(replicas(8, "tpu"), num_samples=60_000, per_replica_batch_size=150)
    assert plan == by_steps == by_target == by_replica


@given(st.integers(1, 3000), st.integers(1, 9), st.integers(1, 400))
def test_the_nearest_batch_is_the_best_of_all_in_its_range(num_samples, num_replicas, target):
    if num_samples < num_replicas:
        return
    found = nearest_batch(num_samples, num_replicas, target)
    ideal = target / num_replicas
    most = num_samples // num_replicas
    allowed = [b for b in range(1, most + 1) if ideal / 2 <= b <= ideal * 2]
    assert 1 <= found <= most
    if not allowed:
        return
    dropped = {
        b: num_samples - num_samples // (b * num_replicas) * b * num_replicas for b in allowed
    }
    fewest = min(dropped.values())
    assert dropped[found] == fewest
    assert abs(found - ideal) == min(abs(b - ideal) for b in allowed if dropped[b] == fewest)


def test_without_a_wish_the_batch_suits_the_hardware():
    rows = 128 * 8 * 10
    assert plan_batches(replicas(8, "tpu"), num_samples=rows).per_replica_batch_size == 128
    assert plan_batches(replicas(8, "gpu"), num_samples=rows).per_replica_batch_size == 32


@given(st.integers(1, 2000), st.integers(1, 100))
def test_the_largest_divisor_has_no_larger_rival(number, limit):
    found = largest_divisor(number, limit)
    assert number % found == 0
    assert found <= limit
    assert not any(number % d == 0 for d in range(found + 1, min(number, limit) + 1))


def test_auto_fuses_up_to_64_steps_and_a_given_number_is_kept():
    auto = plan_batches(replicas(1), num_samples=60_000, global_batch_size=128)
    assert (auto.steps_per_epoch, auto.steps_per_execution) == (468, 52)
    short = plan_batches(replicas(1), num_samples=60_000, global_batch_size=1200)
    assert (short.steps_per_epoch, short.steps_per_execution) == (50, 25)
    assert plan_batches(replicas(1), num_samples=9, global_batch_size=9).steps_per_execution == 1
    given_ = plan_batches(
        replicas(1), num_samples=60_000, global_batch_size=128, steps_per_execution=12
    )
    assert given_.steps_per_execution == 12


def test_numpy_s_integers_count_and_come_out_plain():
    plan = plan_batches(replicas(2), num_samples=np.int64(64), global_batch_size=np.int32(16))
    assert BatchPlan.from_json(plan.to_json()) == plan
    assert type(plan.num_samples) is int


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"num_samples": 0}, "not-a-count"),
        ({"num_samples": 64.0}, "not-a-count"),
        ({"num_samples": True}, "not-a-count"),
        ({"num_validation_samples": -1}, "not-a-count"),
        ({"global_batch_size": 0}, "not-a-count"),
        ({"global_batch_size": 30}, "batch-not-divisible"),
        ({"global_batch_size": 2}, "batch-leaves-replicas-empty"),
        ({"global_batch_size": 1000}, "batch-larger-than-data"),
        ({"per_replica_batch_size": 8}, "batch-said-twice"),
        ({"steps_per_execution": 3}, "steps-not-divisible"),
        ({"steps_per_execution": 0}, "not-a-count"),
        ({"global_batch_size": None, "steps_per_epoch": 7}, "steps-not-even"),
        ({"global_batch_size": None, "steps_per_epoch": 500}, "steps-not-even"),
    ],
)
def test_numbers_that_cannot_work_are_refused_with_cures_that_do(wrong, code):
    arguments = {"num_samples": 320, "global_batch_size": 32, **wrong}
    with pytest.raises(PlanError) as caught:
        plan_batches(replicas(4), **arguments)
    finding = caught.value.finding
    assert finding.code == code
    if code == "steps-not-divisible":
        # Said in steps of the epoch, which follow from the batch here.
        assert finding.cures == ({"steps_per_epoch": 9}, {"steps_per_epoch": 12})
        return
    assert finding.cures
    for cure in finding.cures:
        mended = {**arguments, **cure}
        # One row is a count, though too few for a batch.
        if mended["num_samples"] > 1:
            plan_batches(replicas(4), **mended)


@given(st.integers(1, 2_000), st.integers(1, 6), st.integers(1, 400))
def test_the_steps_that_are_told_are_the_nearest_that_fit(num_samples, num_replicas, steps):
    fitting = [s for s in range(1, num_samples + 1) if num_samples % (s * num_replicas) == 0]
    if steps in fitting or num_samples < num_replicas:
        return
    with pytest.raises(PlanError) as caught:
        plan_batches(replicas(num_replicas), num_samples=num_samples, steps_per_epoch=steps)
    told = [c["steps_per_epoch"] for c in caught.value.finding.cures if c["steps_per_epoch"]]
    below, above = [s for s in fitting if s < steps], [s for s in fitting if s > steps]
    assert told == below[-1:] + above[:1]


def test_as_many_rows_as_any_data_has_are_planned_without_counting_them():
    topology = replicas(8, "tpu")
    with pytest.raises(PlanError, match="steps_per_epoch=1600 or steps_per_epoch=2000"):
        plan_batches(topology, num_samples=8 * 10**12, steps_per_epoch=1_700)
    plan = plan_batches(topology, num_samples=8 * 10**12, global_batch_size=8_000)
    assert (plan.steps_per_epoch, plan.steps_per_execution) == (10**9, 64)


def test_rows_that_no_even_cut_can_use_get_a_target_as_cure():
    with pytest.raises(PlanError) as caught:
        plan_batches(replicas(4), num_samples=101, steps_per_epoch=5)
    (cure,) = caught.value.finding.cures
    assert "target_batch_size=20" in caught.value.finding.fix
    plan = plan_batches(replicas(4), num_samples=101, **cure)
    assert plan.dropped_samples == 1


def test_advice_names_rows_left_out_and_padding_on_a_tpu():
    plan = plan_batches(replicas(8, "tpu"), num_samples=1000, global_batch_size=240)
    assert [finding.code for finding in plan.findings()] == ["rows-dropped", "tpu-batch-padding"]
    on_gpu = plan_batches(replicas(8, "gpu"), num_samples=960, global_batch_size=240)
    assert on_gpu.findings() == ()
