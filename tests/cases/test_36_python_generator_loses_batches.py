"""Of a generator's 6 batches stock Keras uses 3 on two replicas; the same rows, all used."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError, Topology
from keras_tpu_kit.datasets import make_dataset, plan_for_data

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
