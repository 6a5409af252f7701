"""An optimizer made outside the scope stops training with "Mixing different strategies"."""

from __future__ import annotations

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, linear, on_replicas, rows
from tests.replicas import replicas


def test_a_stock_model_is_refused_and_the_optimizer_named():
    optimizer = keras.optimizers.Adam(name="mine")
    with replicas(2).scope():
        model = compiled(optimizer)
    with pytest.raises(ktk.ReplicationError, match="the optimizer 'mine'") as caught:
        ktk.callbacks_for(model, rows(16), batch_size=8)
    assert caught.value.finding.code == "variable-outside-scope"


def test_a_model_compiled_outside_is_refused():
    with replicas(2).scope():
        model = linear()
    model.compile(keras.optimizers.Adam(), "mse")
    with pytest.raises(ktk.ReplicationError, match="the optimizer 'adam"):
        ktk.callbacks_for(model, rows(16), batch_size=8)


def test_the_proposed_fix_passes_and_trains():
    model = on_replicas(optimizer="adam")
    callbacks = ktk.callbacks_for(model, rows(16), batch_size=8)
    model.fit(*rows(16), batch_size=8, verbose=0, callbacks=callbacks)
    assert callbacks[0].throughput.num_replicas == 2


def test_a_factory_makes_its_optimizer_in_the_scope():
    made = lambda: {"optimizer": keras.optimizers.Adam(), "loss": "mse"}  # noqa: E731
    model = LinearFactory(replicas(2), compile_with=made).create()
    model.fit(*rows(16), batch_size=8, verbose=0)
    strategy = replicas(2)
    owned = [
        strategy.extended.variable_created_in_scope(v.value) for v in model.optimizer.variables
    ]
    assert all(owned)


def test_a_factory_refuses_an_optimizer_that_a_hook_brought_along():
    optimizer = keras.optimizers.Adam(name="mine")
    factory = LinearFactory(
        replicas(2), compile_with=lambda: {"optimizer": optimizer, "loss": "mse"}
    )
    with pytest.raises(ktk.FactoryError, match="the optimizer 'mine'"):
        factory.create()
