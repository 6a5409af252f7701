"""An SGD made outside the scope trains on, and counts its iterations R times too fast."""

from __future__ import annotations

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, rows
from tests.replicas import replicas


def test_a_stock_model_is_refused_though_tensorflow_says_nothing():
    optimizer = keras.optimizers.SGD(0.05)
    with replicas(2).scope():
        model = compiled(optimizer)
    with pytest.raises(ktk.ReplicationError, match="the optimizer 'sgd"):
        ktk.callbacks_for(model, rows(64), batch_size=16)


def test_a_factory_refuses_it():
    optimizer = keras.optimizers.SGD(0.05)
    made = lambda: {"optimizer": optimizer, "loss": "mse"}  # noqa: E731
    with pytest.raises(ktk.FactoryError, match="the optimizer 'sgd"):
        LinearFactory(replicas(2), compile_with=made).create()


def test_made_in_scope_it_counts_each_step_once():
    made = lambda: {"optimizer": keras.optimizers.SGD(0.05), "loss": "mse"}  # noqa: E731
    model = LinearFactory(replicas(2), compile_with=made).create()
    model.fit(*rows(64), batch_size=16, shuffle=False, verbose=0)
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 4


def test_steps_per_epoch_check_sees_no_steps_that_did_not_run():
    # The count of iterations is wrong here; the executions are not.
    optimizer = keras.optimizers.SGD(0.05)
    with replicas(2).scope():
        model = compiled(optimizer)
    model.fit(*rows(64), batch_size=16, verbose=0, callbacks=[ktk.StepsPerEpochCheck()])
    assert int(keras.ops.convert_to_numpy(optimizer.iterations)) == 8
