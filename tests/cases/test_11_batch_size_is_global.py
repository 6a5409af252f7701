"""`batch_size` is what all replicas share, which few expect."""

from __future__ import annotations

import numpy as np
import pytest

import keras_tpu_kit as ktk
from keras_tpu_kit.report import plan_figures
from tests.cases.parts import LinearFactory, compiled, on_replicas, rows, weight_gap
from tests.replicas import replicas


def test_a_plan_shows_both_batch_sizes():
    plan = ktk.plan_batches(
        ktk.describe_strategy(replicas(4)), num_samples=64, global_batch_size=32
    )
    figures = plan_figures(plan)
    assert figures["global_batch_size"][0] == 32 and figures["per_replica_batch_size"][0] == 8


def test_the_rows_that_were_seen_are_those_of_all_replicas_together():
    model = on_replicas()
    callbacks = ktk.callbacks_for(model, rows(64), batch_size=32)
    assert callbacks[2].samples_per_epoch == 64
    model.fit(*rows(64), batch_size=32, verbose=0, callbacks=callbacks)


def test_train_on_batch_of_a_factory_model_takes_each_row_once():
    model = LinearFactory(replicas(2)).create()
    one = compiled()
    model.train_on_batch(*rows(32))
    one.train_on_batch(*rows(32))
    assert weight_gap(model, one) < 1e-6


def test_predict_keeps_one_answer_a_row():
    model = LinearFactory(replicas(2)).create()
    x, _ = rows(32)
    assert model.predict(x, verbose=0) == pytest.approx(x.sum(axis=1, keepdims=True), abs=1e-5)
    assert np.shape(model.predict(x[:5], verbose=0)) == (5, 1)
