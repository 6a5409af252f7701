"""Steps that executions do not divide: 10 at 4 an execution silently run 12."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, on_replicas, rows, weight_gap
from tests.replicas import replicas


def endless():
    return tf.data.Dataset.from_tensor_slices(rows(80)).batch(8).repeat().prefetch(1)


def test_the_two_nearest_numbers_of_steps_are_told_and_work():
    model = compiled(steps_per_execution=4)
    with pytest.raises(
        ktk.PlanError, match="Use steps_per_epoch=8 or steps_per_epoch=12"
    ) as caught:
        ktk.callbacks_for(model, endless(), steps_per_epoch=10)
    assert caught.value.finding.code == "steps-not-divisible"
    for steps in (8, 12):
        callbacks = ktk.callbacks_for(model, endless(), steps_per_epoch=steps)
        before = int(model.optimizer.iterations)
        model.fit(endless(), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=callbacks)
        assert int(model.optimizer.iterations) == before + steps


@pytest.mark.parametrize("on", [compiled, lambda **options: ktk.replicate(on_replicas(**options))])
def test_data_that_ends_with_the_epoch_ends_its_last_execution(on):
    model = on(steps_per_execution=4)
    callbacks = ktk.callbacks_for(model, rows(80), batch_size=8, epochs=2)
    model.fit(*rows(80), batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 20


def test_steps_per_epoch_check_alone_refuses_before_the_first_step():
    model = compiled(steps_per_execution=4)
    before = model.get_weights()[0].copy()
    with pytest.raises(ktk.PlanError, match="would run 12 steps, not 10"):
        model.fit(*rows(80), batch_size=8, verbose=0, callbacks=[ktk.StepsPerEpochCheck()])
    assert (model.get_weights()[0] == before).all()


def test_warned_the_epoch_runs_on_and_its_real_steps_are_told():
    model = compiled(steps_per_execution=4)
    with pytest.warns(UserWarning) as caught:
        model.fit(
            endless(),
            steps_per_epoch=10,
            shuffle=False,
            verbose=0,
            callbacks=[ktk.StepsPerEpochCheck(on_problem="warn")],
        )
    told = [str(each.message) for each in caught]
    assert "would run 12 steps, not 10" in told[0] and "ran 12 steps, not the 10" in told[1]


def test_fused_steps_under_collectives_are_refused_before_keras_dies_of_them():
    # A strategy of its own only to look at: nothing is reduced through it.
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = compiled(steps_per_execution=2)
    with pytest.raises(ktk.PlanError) as caught:
        ktk.callbacks_for(model, rows(64), batch_size=8)
    assert caught.value.finding.code == "fused-steps-on-replicas"
    assert ktk.callbacks_for(ktk.replicate(model), rows(64), batch_size=8)


def test_a_factory_fuses_steps_on_replicas_and_equals_one_device():

    plan = ktk.plan_batches(
        ktk.describe_strategy(replicas(2)),
        num_samples=64,
        global_batch_size=8,
        steps_per_execution=4,
    )
    model, one = LinearFactory(replicas(2), plan).create(), compiled()
    train = ktk.make_dataset(rows(64), plan, shuffle=False)
    callbacks = ktk.plan_callbacks(plan, train)
    model.fit(train, verbose=0, callbacks=callbacks, **plan.fit_args())
    one.fit(*rows(64), batch_size=8, shuffle=False, verbose=0)
    assert callbacks[0].throughput.steps == 4  # Two executions, the first kept apart.
    assert weight_gap(model, one) < 1e-6
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 8


def test_a_factory_on_replicas_refuses_steps_that_do_not_divide():
    with pytest.raises(ktk.PlanError, match="steps_per_epoch=8 or steps_per_epoch=12"):
        ktk.plan_batches(
            ktk.describe_strategy(replicas(2)),
            num_samples=80,
            global_batch_size=8,
            steps_per_execution=4,
        )


def test_a_stock_model_on_replicas_reduced_by_one_device_may_fuse():
    model = on_replicas(steps_per_execution=2)
    assert ktk.callbacks_for(model, rows(64), batch_size=8)
