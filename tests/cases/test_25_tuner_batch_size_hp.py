"""Batch sizes that the replicas do not divide kill their trials, and bias the search silently."""

from __future__ import annotations

import dataclasses

import keras_tuner

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, rows
from tests.replicas import replicas

DATA = rows(120)


class Batches(keras_tuner.HyperModel):
    def build(self, hp):
        return compiled()

    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, batch_size=hp.Choice("batch", [10, 24]), **kwargs)


class PerReplica(LinearFactory):
    def plan_for(self, hp):
        size = hp.Choice("per_replica_batch_size", [3, 5, 6])
        return dataclasses.replace(self.plan, per_replica_batch_size=size)


def test_no_batch_size_of_a_hypermodel_is_lost(tmp_path):
    tuner = ktk.GridSearch(Batches(), "val_loss", directory=tmp_path, strategy=replicas(4))
    tuner.search(*DATA, validation_data=DATA, epochs=1, verbose=0)
    tried = {each["hyperparameters"]["batch"]: each["outcome"] for each in tuner.results()}
    assert tried == {10: "finished", 24: "finished"}


def test_per_replica_batch_sizes_are_tuned_and_none_is_lost(tmp_path):
    tuner = ktk.GridSearch(PerReplica(replicas(4)), "val_loss", directory=tmp_path)
    tuner.search(DATA, validation_data=DATA, epochs=1, verbose=0)
    tried = {each["per_replica_batch_size"]: each["outcome"] for each in tuner.results()}
    assert tried == dict.fromkeys((3, 5, 6), "finished")
