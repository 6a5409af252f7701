"""5 batches for 10 steps: Keras trains short epochs with a warning, or stops early."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import KitError, PlanError, Topology, callbacks_for
from keras_tpu_kit.datasets import make_dataset, plan_for_data
from tests.cases.parts import on_replicas

ROWS = tf.data.Dataset.from_tensor_slices((np.zeros((40, 3)), np.zeros((40, 1))))
TWO = Topology(accelerator="cpu", num_replicas=2)


@pytest.mark.parametrize(("steps", "told"), [(10, "ask for 10"), (3, "use 3 of them")])
def test_steps_are_held_against_the_batches_before_training(steps, told):
    with pytest.raises(PlanError, match="holds 5 batches") as refusal:
        plan_for_data(TWO, ROWS.batch(8), steps_per_epoch=steps)
    assert told in str(refusal.value)
    assert "steps_per_epoch=5" in refusal.value.finding.fix


@pytest.mark.parametrize("data", [ROWS, ROWS.batch(8), ROWS.filter(lambda x, y: True)])
def test_what_the_kit_feeds_never_runs_out(data):
    plan = plan_for_data(
        TWO, data, num_samples=40, **({} if data.cardinality() == 5 else {"global_batch_size": 8})
    )
    train = make_dataset(data, plan)
    assert plan.steps_per_epoch == 5
    assert sum(1 for _ in train.take(3 * plan.steps_per_epoch)) == 15


def test_a_stock_call_of_fit_is_told_the_steps_that_work_and_they_do():
    model, data = on_replicas(), ROWS.batch(8).prefetch(1)
    with pytest.raises(KitError, match="3 epochs of steps_per_epoch=10 ask for 30") as refusal:
        callbacks_for(model, data, steps_per_epoch=10, epochs=3)
    steps, repeated = refusal.value.finding.cures
    assert callbacks_for(model, data, epochs=3, **steps)
    assert repeated and callbacks_for(model, data.repeat(), steps_per_epoch=10, epochs=3)
