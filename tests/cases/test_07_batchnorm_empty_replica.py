"""A last batch that leaves a replica empty turns BatchNormalization non-finite."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import rows
from tests.replicas import replicas

ROWS, BATCH = 17, 16  # On 2 replicas the last batch, of one row, leaves one of them empty.


def normalised(synchronized=False):
    norm = keras.layers.BatchNormalization(synchronized=synchronized, name="norm")
    return keras.Sequential([keras.Input((3,)), norm, keras.layers.Dense(1)])


def test_a_stock_model_is_refused_and_its_mode_reported():
    with replicas(2).scope():
        model = normalised()
        model.compile("sgd", "mse")
    with (
        pytest.warns(UserWarning, match="normalises over one replica's rows.*'norm'"),
        pytest.raises(ktk.DataError, match="a batch of 1 rows") as caught,
    ):
        ktk.callbacks_for(model, rows(ROWS), batch_size=BATCH)
    assert caught.value.finding.code == "batch-uneven"


def test_batch_size_check_alone_finds_it_at_the_end_of_the_epoch():
    with replicas(2).scope():
        model = normalised(synchronized=True)
        model.compile("sgd", "mse")
    with pytest.raises(ktk.DataError, match="17 rows in 2 steps"):
        model.fit(*rows(ROWS), batch_size=BATCH, verbose=0, callbacks=[ktk.BatchSizeCheck()])


def test_the_replicated_step_keeps_the_weights_finite():
    class Normalised(ktk.ModelFactory):
        def build(self, hp):
            return normalised()

        def compile_args(self, hp):
            return {"optimizer": keras.optimizers.SGD(0.01), "loss": "mse"}

    model = Normalised(replicas(2)).create()
    callbacks = ktk.callbacks_for(model, rows(ROWS), batch_size=BATCH)
    model.fit(*rows(ROWS), batch_size=BATCH, shuffle=False, verbose=0, callbacks=callbacks)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_a_plan_never_leaves_a_replica_empty():
    topology = ktk.describe_strategy(replicas(2))
    plan = ktk.plan_batches(topology, num_samples=ROWS, global_batch_size=BATCH)
    assert (plan.steps_per_epoch, plan.dropped_samples) == (1, 1)
