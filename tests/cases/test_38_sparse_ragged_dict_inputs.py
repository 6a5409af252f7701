"""Sparse and ragged inputs stop stock Keras on replicas with an unrelated message."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.cases.parts import compiled, on_replicas
from tests.replicas import replicas

LABELS = np.arange(16, dtype="float32")[:, None]
RAGGED = tf.RaggedTensor.from_row_lengths(np.arange(24, dtype="float32"), [1, 2] * 8)
SPARSE = tf.sparse.from_dense(np.eye(16, 3, dtype="float32"))


def two_inputs():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    return keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(joined))


@pytest.mark.parametrize(("kind", "column"), [("ragged", RAGGED), ("sparse", SPARSE)])
def test_the_column_is_named(kind, column):
    data = tf.data.Dataset.from_tensor_slices(({"tags": column}, LABELS)).batch(8)
    with pytest.raises(ktk.DataError, match=rf"x\['tags'\] is {kind}") as caught:
        ktk.callbacks_for(on_replicas(), data)
    assert caught.value.finding.code == "input-not-dense"


def test_the_replicated_step_refuses_it_as_well():
    data = tf.data.Dataset.from_tensor_slices((SPARSE, LABELS)).batch(8)
    with pytest.raises(ktk.DataError, match="x is sparse"):
        ktk.callbacks_for(ktk.replicate(on_replicas()), data)


def test_made_dense_as_the_fix_says_it_trains():
    sparse = tf.data.Dataset.from_tensor_slices((SPARSE, LABELS)).batch(8)
    dense = sparse.map(lambda x, y: (tf.sparse.to_dense(x), y)).prefetch(1)
    model = on_replicas()
    model.fit(dense, shuffle=False, verbose=0, callbacks=ktk.callbacks_for(model, dense))


def test_dicts_and_sample_weights_pass():
    x = {"a": np.ones((16, 2), "float32"), "b": np.ones((16, 2), "float32")}
    weights = np.ones(16, "float32")
    with replicas(2).scope():
        model = two_inputs()
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((x, LABELS, weights)).batch(8).prefetch(1)
    model.fit(data, shuffle=False, verbose=0, callbacks=ktk.callbacks_for(model, data))


def test_one_device_may_have_any_kind():
    data = tf.data.Dataset.from_tensor_slices((RAGGED, LABELS)).batch(8)
    assert ktk.callbacks_for(compiled(), data)
