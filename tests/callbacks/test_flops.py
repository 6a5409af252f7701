"""Operations of a step, against those counted by hand."""

from __future__ import annotations

import keras
import pytest

from keras_tpu_kit.callbacks import step_flops
from tests.replicas import replicas


def dense():
    return keras.Sequential([keras.Input((100,)), keras.layers.Dense(50), keras.layers.Dense(10)])


def test_dense_layers_cost_three_products_but_for_the_first_that_needs_no_gradient_of_its_input():
    by_hand = 2 * 32 * (2 * 100 * 50 + 3 * 50 * 10)
    assert step_flops(dense(), 32) == pytest.approx(by_hand, rel=0.02)


def test_replicas_do_not_count_twice():
    with replicas(2).scope():
        model = dense()
    assert step_flops(model, 32) == step_flops(dense(), 32)


def test_a_convolution_costs_two_products_where_its_input_needs_no_gradient():
    model = keras.Sequential([keras.Input((16, 16, 8)), keras.layers.Conv2D(32, 3, padding="same")])
    by_hand = 2 * 2 * 4 * (16 * 16 * 32) * (3 * 3 * 8)
    assert step_flops(model, 4) == pytest.approx(by_hand, rel=0.02)


def test_inputs_are_fed_by_name():
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    model = keras.Model({"b": b, "a": a}, keras.layers.Dense(400)(joined))
    assert step_flops(model, 10) == pytest.approx(2 * 2 * 10 * 5 * 400, rel=0.2)


@pytest.mark.parametrize(
    "model",
    [
        lambda: keras.Sequential([keras.Input((20, 4)), keras.layers.LSTM(8)]),
        lambda: keras.Sequential([keras.Input((None, 4)), keras.layers.Dense(8)]),
        lambda: keras.Sequential([keras.layers.Dense(8)]),
    ],
    ids=["loop", "open", "unbuilt"],
)
def test_what_cannot_be_counted_is_unknown(model):
    assert step_flops(model(), 10) is None
