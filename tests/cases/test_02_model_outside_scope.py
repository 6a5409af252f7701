"""A model, or a part of it, that was made outside the scope trains on one replica, silently."""

from __future__ import annotations

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import compiled, linear, rows
from tests.replicas import replicas


def test_a_model_made_outside_is_refused_before_it_idles_the_other_replicas():
    model = compiled()
    with replicas(2).scope(), pytest.raises(ktk.ReplicationError) as caught:
        ktk.callbacks_for(model, rows(16), batch_size=8)
    assert "layer 'dense" in str(caught.value) and "not on the 2 replicas" in str(caught.value)


def test_a_plan_refuses_a_model_of_other_replicas():
    plan = ktk.plan_batches(ktk.describe_strategy(replicas(2)), num_samples=16, global_batch_size=8)
    model = compiled()
    train = ktk.make_dataset(rows(16), plan, seed=1)
    with pytest.raises(ktk.ReplicationError, match=r"built for 1 replicas?, and 2 are there"):
        model.fit(train, verbose=0, **plan.fit_args(), callbacks=ktk.plan_callbacks(plan, train))


@pytest.mark.parametrize("trainable", [True, False])
def test_a_backbone_made_outside_is_named_frozen_or_not(trainable):
    backbone = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)], name="backbone")
    backbone.trainable = trainable
    with replicas(2).scope():
        model = keras.Sequential([backbone, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with pytest.raises(ktk.ReplicationError, match="'backbone'"):
        ktk.callbacks_for(model, rows(16), batch_size=8)


def test_a_factory_names_the_layer_that_build_brought_along():
    backbone = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)], name="backbone")

    class Outside(ktk.ModelFactory):
        def build(self, hp):
            return keras.Sequential([backbone, keras.layers.Dense(1)])

        def compile_args(self, hp):
            return {"optimizer": "sgd", "loss": "mse"}

    with pytest.raises(ktk.FactoryError, match="'backbone'"):
        Outside(replicas(2)).create()


def test_a_model_on_one_replica_with_no_strategy_in_sight_is_fine():
    model = linear()
    model.compile("sgd", "mse")
    callbacks = ktk.callbacks_for(model, rows(16), batch_size=8)
    model.fit(*rows(16), batch_size=8, verbose=0, callbacks=callbacks)
    assert callbacks[0].throughput.num_replicas == 1


@pytest.mark.parametrize("inside", ["optimizer", "compile", "layer"])
def test_a_part_made_in_a_scope_that_the_model_is_not_in_is_named(inside):
    if inside == "layer":
        with replicas(2).scope():
            dense = keras.layers.Dense(1)
            dense.build((None, 3))
        model = keras.Sequential([keras.Input((3,)), dense])
        model.compile("sgd", "mse")
    else:
        model = linear()
        with replicas(2).scope():
            optimizer = keras.optimizers.SGD(0.1)
            if inside == "compile":
                model.compile(optimizer, "mse")
        if inside == "optimizer":
            model.compile(optimizer, "mse")
    with pytest.raises(
        ktk.ReplicationError, match="is on 2 replicas, and the model on 1"
    ) as caught:
        ktk.callbacks_for(model, rows(16), batch_size=8)
    assert caught.value.finding.code == "model-outside-scope"
