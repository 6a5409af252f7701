"""Of a generator's 6 batches stock Keras uses 3 on two replicas; the same rows, all used."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError, Topology, callbacks_for
from keras_tpu_kit.datasets import make_dataset, plan_for_data
from tests.cases.parts import on_replicas

TWO = Topology(accelerator="cpu", num_replicas=2)


def generator():
    for batch in range(6):
        yield np.full((4, 1), batch, np.float32), np.zeros((4, 1), np.float32)


def test_the_generator_is_refused_before_training():
    for made in (
        lambda: plan_for_data(TWO, generator(), num_samples=24),
        lambda: make_dataset(generator(), plan_for_data(TWO, np.zeros(24))),
    ):
        with pytest.raises(DataError, match="from_generator") as refusal:
            made()
        assert refusal.value.finding.code == "generator-loses-data"


def test_as_a_dataset_no_batch_is_lost():
    signature = (tf.TensorSpec((4, 1)), tf.TensorSpec((4, 1)))
    signature = tf.nest.map_structure(lambda s: tf.TensorSpec((None, 1), s.dtype), signature)
    data = tf.data.Dataset.from_generator(generator, output_signature=signature)
    plan = plan_for_data(TWO, data, num_samples=24, global_batch_size=4)
    epochs = [x[0, 0].numpy() for x, _ in make_dataset(data, plan).take(12)]
    assert epochs == [0, 1, 2, 3, 4, 5] * 2


def test_a_stock_model_on_replicas_is_refused_the_generator_but_not_the_dataset():
    with pytest.raises(DataError, match="of 6 batches 3 were used"):
        callbacks_for(on_replicas(), generator(), steps_per_epoch=6)
    signature = (tf.TensorSpec((4, 1)), tf.TensorSpec((4, 1)))
    data = tf.data.Dataset.from_generator(generator, output_signature=signature)
    data = data.apply(tf.data.experimental.assert_cardinality(6)).prefetch(1)
    assert callbacks_for(on_replicas(), data, steps_per_epoch=6)
