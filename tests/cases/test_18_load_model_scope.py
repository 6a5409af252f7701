"""A model that is loaded outside the scope trains on one replica, silently."""

from __future__ import annotations

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, rows
from tests.replicas import replicas


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A model that was trained for four steps on two replicas, in a file."""
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    adam = lambda: {"optimizer": "adam", "loss": "mse"}  # noqa: E731
    model = LinearFactory(replicas(2), compile_with=adam).create()
    model.fit(*rows(32), batch_size=8, verbose=0)
    model.save(path)
    return path, model.get_weights()


def test_a_model_loaded_outside_is_refused_in_the_scope_and_by_a_plan(saved):
    model = keras.saving.load_model(saved[0])
    with replicas(2).scope(), pytest.raises(ktk.ReplicationError, match="not on the 2 replicas"):
        ktk.callbacks_for(model, rows(32), batch_size=8)
    plan = ktk.plan_batches(ktk.describe_strategy(replicas(2)), num_samples=32, global_batch_size=8)
    with pytest.raises(ktk.ReplicationError, match="and 2 are there"):
        model.fit(*rows(32), batch_size=8, verbose=0, callbacks=[ktk.BatchSizeCheck(plan)])


def test_a_model_loaded_in_the_scope_passes(saved):
    with replicas(2).scope():
        model = keras.saving.load_model(saved[0])
    assert ktk.callbacks_for(model, rows(32), batch_size=8)


def test_a_factory_loads_model_and_optimizer_onto_all_replicas(saved):
    path, weights = saved
    strategy = replicas(2)
    model = LinearFactory(strategy).load(path)
    variables = [*model.variables, *model.optimizer.variables]
    assert all(strategy.extended.variable_created_in_scope(each.value) for each in variables)
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 4
    for mine, theirs in zip(model.get_weights(), weights, strict=True):
        assert (mine == theirs).all()
    model.fit(*rows(32), batch_size=8, verbose=0)
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 8
