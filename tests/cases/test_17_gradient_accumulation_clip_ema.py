"""Accumulated gradients stop stock Keras on replicas; clipping there is not one device's."""

from __future__ import annotations

import warnings

import keras
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, rows, weight_gap
from tests.replicas import replicas


def sgd(**kwargs):
    return keras.optimizers.SGD(0.01, **kwargs)


def test_accumulation_on_a_stock_model_is_refused_with_a_reason():
    with replicas(2).scope():
        model = compiled(sgd(gradient_accumulation_steps=2))
    with pytest.raises(ktk.ReplicationError, match="gradient_accumulation_steps=2") as caught:
        ktk.callbacks_for(model, rows(64), batch_size=16)
    assert caught.value.finding.code == "gradient-accumulation"
    assert ktk.callbacks_for(ktk.replicate(model), rows(64), batch_size=16)


@pytest.mark.parametrize("clip", ["clipnorm", "global_clipnorm", "clipvalue"])
def test_clipping_on_a_stock_model_is_told(clip):
    with replicas(2).scope():
        model = compiled(sgd(**{clip: 0.5}))
    with pytest.warns(UserWarning, match=clip):
        ktk.callbacks_for(model, rows(64), batch_size=16)


@pytest.mark.parametrize("kwargs", [{"use_ema": True}, {"weight_decay": 0.1}, {}], ids=str)
def test_what_stock_keras_does_right_is_left_alone(kwargs):
    with replicas(2).scope():
        model = compiled(sgd(**kwargs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ktk.callbacks_for(model, rows(64), batch_size=16)


@pytest.mark.parametrize(
    "kwargs", [{"gradient_accumulation_steps": 2}, {"clipnorm": 0.5}], ids=["accumulation", "clip"]
)
def test_a_factory_model_equals_one_device(kwargs):
    made = lambda: {"optimizer": sgd(**kwargs), "loss": "mse"}  # noqa: E731
    model, one = LinearFactory(replicas(2), compile_with=made).create(), compiled(sgd(**kwargs))
    for each in (model, one):
        each.fit(*rows(64), batch_size=16, shuffle=False, verbose=0)
    assert weight_gap(model, one) < 1e-5


def test_the_steps_of_an_accumulating_model_are_counted_not_its_updates():
    model = compiled(sgd(gradient_accumulation_steps=2))
    model.fit(*rows(64), batch_size=16, verbose=0, callbacks=[ktk.StepsPerEpochCheck()])
