"""Builds and loads the models of a search, in the strategy's scope."""

from __future__ import annotations

import dataclasses
import pathlib
import zlib
from typing import Any

import keras
import keras_tuner
import numpy as np

from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.factory.names import reset_names
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.tuner import weights
from keras_tpu_kit.tuner.internals import load_json
from keras_tpu_kit.tuner.project import Project
from keras_tpu_kit.tuner.project.files import read_json, write_json
from keras_tpu_kit.tuner.trial_run import TrialEnded

PLAN_FILE = "plan.json"


class TrialModels(keras_tuner.Tuner):  # type: ignore[misc]
    """The part of a tuner that makes models; `load_model` serves `get_best_models`."""

    factory: ModelFactory
    project: Project

    def _try_build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns a new model, whose layers and metrics are named as if it were the first."""
        reset_names()
        model = self._build_hypermodel(hp)
        size = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
        if self.max_model_size and size > self.max_model_size:
            raise TrialEnded("infeasible", f"{size} weights exceed max_model_size.")
        return model

    def _build_hypermodel(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns a new model, which goes on from the trial that it was promoted from."""
        model: keras.Model = self.hypermodel.build(hp)
        if "tuner/trial_id" in hp.values:
            self._restore(model, hp.values["tuner/trial_id"])
        return model

    def _override_compile_args(self, model: keras.Model) -> None:
        """Compiles with what the tuner was given; KerasTuner can only compile anew."""
        if model.compiled:
            super()._override_compile_args(model)
            return
        given = {"optimizer": self.optimizer, "loss": self.loss, "metrics": self.metrics}
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.optimizer, keras.optimizers.Optimizer):
            # Each trial's model needs an optimizer of its own.
            given["optimizer"] = keras.optimizers.deserialize(
                keras.optimizers.serialize(self.optimizer)
            )
        if given:
            model.compile(**given)

    def keep_plan(self) -> None:
        """Writes the plan that the search's data gave, for `load_model` in another process."""
        if self.factory.plan is not None and not self.project.is_worker:
            path = pathlib.Path(self.project.path)
            path.mkdir(parents=True, exist_ok=True)
            write_json(path / PLAN_FILE, self.factory.plan.to_dict())

    def load_model(self, trial: Any) -> keras.Model:
        """Returns the model of a trial with its best weights, on all replicas."""
        if self.factory.plan is None:
            kept = read_json(pathlib.Path(self.project.path) / PLAN_FILE).value
            if kept is not None:
                plan = BatchPlan.from_dict(kept)
                # The hardware may be another one than the search had.
                topology = self.factory.topology
                self.factory.plan = dataclasses.replace(plan, topology=topology)
        reset_names()
        model: keras.Model = self.hypermodel.build(trial.hyperparameters)
        self._restore(model, trial.trial_id)
        return model

    def _restore(self, model: keras.Model, trial_id: str) -> None:
        with self.factory.strategy.scope():
            if not model.built:
                model.build_from_config(load_json(self._get_build_config_fname(trial_id)))
            weights.restore(model, self._get_checkpoint_fname(trial_id))

    def seed_execution(self, trial: Any, execution: int) -> None:
        """Makes weights, shuffling and dropout those of this trial, however often it is begun."""
        told = f"{self.project.oracle.seed}/{trial.trial_id}/{execution}"
        keras.utils.set_random_seed(zlib.crc32(told.encode()) % 2**31)
