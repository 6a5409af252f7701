"""Strings and booleans stop stock Keras on replicas in a step that averages a batch."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.replicas import replicas

LABELS = np.arange(16, dtype="float32")[:, None]


def string_model():
    words = keras.Input((1,), dtype="string")
    tokens = keras.layers.StringLookup(vocabulary=["a", "b"])(words)
    vectors = keras.layers.Flatten()(keras.layers.Embedding(3, 2)(tokens))
    return keras.Model(words, keras.layers.Dense(1)(vectors))


def bool_model():
    flags = keras.Input((3,), dtype="bool")
    return keras.Model(flags, keras.layers.Dense(1)(keras.ops.cast(flags, "float32")))


def embedding_model():
    return keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(10, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )


KINDS = {
    "string": (string_model, np.array([["a"], ["b"]] * 8)),
    "bool": (bool_model, np.arange(48).reshape(16, 3) % 2 == 0),
}


class Compiled(ktk.ModelFactory):
    def __init__(self, make, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.make = make

    def build(self, hp):
        return self.make()

    def compile_args(self, hp):
        return {"optimizer": "adam", "loss": "mse"}


def batched(x):
    return tf.data.Dataset.from_tensor_slices((x, LABELS)).batch(8).prefetch(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stock_model_is_refused_and_the_column_named(kind):
    make, x = KINDS[kind]
    with replicas(2).scope():
        model = make()
        model.compile("adam", "mse")
    with pytest.raises(ktk.DataError, match=f"x holds {kind} values") as caught:
        ktk.callbacks_for(model, batched(x))
    assert caught.value.finding.code == "input-dtype"


@pytest.mark.parametrize("kind", KINDS)
def test_a_factory_model_trains_on_it(kind):
    make, x = KINDS[kind]
    model = Compiled(make, replicas(2)).create()
    callbacks = ktk.callbacks_for(model, batched(x))
    history = model.fit(batched(x), shuffle=False, verbose=0, callbacks=callbacks)
    assert np.isfinite(history.history["loss"]).all()


def test_integer_tokens_pass_on_a_stock_model():
    with replicas(2).scope():
        model = embedding_model()
        model.compile("adam", "mse")
    data = batched(np.arange(64).reshape(16, 4) % 10)
    model.fit(data, shuffle=False, verbose=0, callbacks=ktk.callbacks_for(model, data))
