"""Generators, PyDatasets and datasets of every shape: each is fed whole, or named."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import DataError, PlanError, Topology, callbacks_for
from keras_tpu_kit.datasets import make_dataset, plan_for_data
from tests.cases.parts import compiled, on_replicas

FOUR = Topology(accelerator="cpu", num_replicas=4)


class Batches(keras.utils.PyDataset):
    def __init__(self, size, count, **kwargs):
        super().__init__(**kwargs)
        self.size, self.count = size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rows = np.arange(self.size) + index * self.size
        return rows.astype(np.float32), -rows


def generator():
    yield np.zeros((8, 3)), np.zeros((8, 1))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [6, 8])
def test_a_py_dataset_is_fed_whole_in_batches_that_the_replicas_divide(size, workers):
    data = Batches(size, 4, workers=workers)
    plan = plan_for_data(FOUR, data, global_batch_size=8)
    epoch = [x for x, _ in make_dataset(data, plan).take(plan.steps_per_epoch)]
    assert sorted(np.concatenate(epoch).tolist()) == list(range(4 * size))


def test_a_generator_is_refused_naming_what_to_use():
    with pytest.raises(DataError, match="PyDataset") as refusal:
        plan_for_data(FOUR, generator(), num_samples=8)
    assert refusal.value.finding.code == "generator-loses-data"


def test_a_dataset_from_a_generator_needs_its_rows_named():
    data = tf.data.Dataset.from_generator(
        generator, output_signature=(tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1)))
    )
    plan = plan_for_data(FOUR, data, num_samples=8, global_batch_size=8)
    assert next(iter(make_dataset(data, plan)))[0].shape == (8, 3)


def test_a_dataset_that_was_never_batched_is_batched():
    data = tf.data.Dataset.from_tensor_slices((np.ones((16, 3)), np.ones((16, 1))))
    train = make_dataset(data, plan_for_data(FOUR, data, global_batch_size=8))
    assert train.element_spec[0].shape == (8, 3)


def test_a_dataset_without_a_whole_batch_is_named():
    data = tf.data.Dataset.range(6).batch(8, drop_remainder=True)
    with pytest.raises(PlanError, match="num_samples=0"):
        plan_for_data(FOUR, data)


def test_a_stock_model_on_replicas_is_told_what_it_cannot_be_fed():
    rows = tf.data.Dataset.from_tensor_slices((np.ones((16, 3)), np.ones((16, 1))))
    for data, error, code in (
        (generator(), DataError, "generator-loses-data"),
        (Batches(6, 3), PlanError, "batch-not-divisible"),
        (rows, DataError, "dataset-not-batched"),
        (rows.take(6).batch(8, drop_remainder=True), PlanError, "dataset-empty"),
    ):
        with pytest.raises(error) as refusal:
            callbacks_for(on_replicas(4), data)
        assert refusal.value.finding.code == code
    assert callbacks_for(on_replicas(4), Batches(8, 3))


def test_one_device_may_be_fed_a_generator():
    assert callbacks_for(compiled(), generator())
