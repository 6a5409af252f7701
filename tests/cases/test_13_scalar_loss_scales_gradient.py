"""A loss that takes its own mean trains R times too fast on R replicas, silently."""

from __future__ import annotations

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, on_replicas, rows, weight_gap
from tests.replicas import replicas


def scalar_loss(y, p):
    return keras.ops.mean(keras.ops.square(y - p))


def row_loss(y, p):
    return keras.ops.mean(keras.ops.square(y - p), axis=-1)


def test_a_stock_model_with_it_is_refused_with_the_one_line_fix():
    with pytest.raises(ktk.ReplicationError, match="'scalar_loss'") as caught:
        ktk.callbacks_for(on_replicas(loss=scalar_loss), rows(64), batch_size=64)
    assert caught.value.finding.code == "scalar-loss"
    assert "keras.ops.mean(keras.ops.square(y - p), axis=-1)" in caught.value.finding.fix


def test_the_proposed_fix_passes_and_equals_one_device():
    model, one = on_replicas(loss=row_loss), compiled(loss=row_loss)
    callbacks = ktk.callbacks_for(model, rows(64), batch_size=64)
    for each, watch in ((model, callbacks), (one, [])):
        each.fit(*rows(64), batch_size=64, shuffle=False, verbose=0, callbacks=watch)
    assert weight_gap(model, one) < 1e-6


def test_a_factory_model_with_it_equals_one_device():
    with_scalar = lambda: {"optimizer": "sgd", "loss": scalar_loss}  # noqa: E731
    model = LinearFactory(replicas(2), compile_with=with_scalar).create()
    one = compiled(loss=scalar_loss)
    losses = [
        each.fit(*rows(64), batch_size=64, shuffle=False, verbose=0).history["loss"]
        for each in (model, one)
    ]
    assert weight_gap(model, one) < 1e-6
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
