"""All that a training needs to go on as if it had never stopped, in one file."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.callbacks.consumption import value_of
from keras_tpu_kit.checks.model import check_optimizers_built
from keras_tpu_kit.errors import Finding, PlanError, refuse
from keras_tpu_kit.placement import held_by


@dataclasses.dataclass(frozen=True, kw_only=True)
class Position:
    """Where a training stood.

    Args:
        epoch: The epoch that was running, from 0.
        step: Steps of it that are done.
        steps_per_epoch: Steps of the whole epoch, or `None` where `fit` does not know.
        batches: Batches that the input's iterator had given.
    """

    epoch: int
    step: int
    steps_per_epoch: int | None
    batches: int


class TrainingState:
    """The values of a model's variables, its optimizers' and its metrics', and the position.

    Args:
        position: Where training stood.
        values: Name of each group (`"model"`, `"optimizer"`, `"metrics"`) to its arrays.
    """

    def __init__(self, position: Position, values: Mapping[str, list[np.ndarray]]) -> None:
        self.position = position
        self.values = values

    @classmethod
    def of(cls, model: keras.Model, position: Position, metrics: list[Any]) -> TrainingState:
        """Returns the state of a model now. Several workers all have to call it.

        Args:
            model: A built and compiled model.
            position: Where its training stands.
            metrics: Values of its metrics, from `metric_values`.
        """
        values = {
            name: [_read(variable) for variable in variables]
            for name, variables in _groups(model).items()
        }
        return cls(position, {**values, "metrics": metrics})

    def save(self, path: str) -> None:
        """Writes the state in one piece: a reader finds the old file or the new one."""
        content = io.BytesIO()
        arrays: dict[str, Any] = {
            f"{name}/{index}": value
            for name, values in self.values.items()
            for index, value in enumerate(values)
        }
        position = json.dumps(dataclasses.asdict(self.position))
        np.savez(content, position=np.array(position), **arrays)
        tf.io.gfile.makedirs(path.rpartition("/")[0] or ".")
        unfinished = f"{path}.{os.getpid()}.unfinished"
        with tf.io.gfile.GFile(unfinished, "wb") as file:
            file.write(content.getvalue())
        tf.io.gfile.rename(unfinished, path, overwrite=True)

    @classmethod
    def load(cls, path: str) -> TrainingState | None:
        """Returns the state in a file, or `None` where there is none."""
        if not tf.io.gfile.exists(path):
            return None
        with tf.io.gfile.GFile(path, "rb") as file:
            arrays = dict(np.load(io.BytesIO(file.read()), allow_pickle=False))
        position = Position(**json.loads(str(arrays.pop("position"))))
        values: dict[str, list[np.ndarray]] = {"model": [], "optimizer": [], "metrics": []}
        for key in sorted(arrays, key=lambda key: int(key.split("/")[1])):
            values[key.split("/")[0]].append(arrays[key])
        return cls(position, values)

    def restore_weights(self, model: keras.Model) -> None:
        """Gives a model's variables and its optimizers' the saved values.

        Raises:
            PlanError: If the state is another model's.
        """
        for name, variables in _groups(model).items():
            _assign(variables, self.values[name], name)

    def restore_metrics(self, model: keras.Model) -> None:
        """Gives a model's metrics the saved values, once they are built.

        TensorFlow shares a sum out over the replicas of all workers.
        """
        _assign(model.metrics_variables, self.values["metrics"], "metrics")


def build_optimizers(model: keras.Model) -> None:
    """Makes the variables of a model's optimizer, and sees that those of others are made.

    Raises:
        PlanError: If the model holds another optimizer that is not built: nobody but its own step
            knows whose variables it will update.
    """
    optimizer = model.optimizer
    if optimizer is not None and not optimizer.built:
        with model.distribute_strategy.scope():
            optimizer.build(model.trainable_variables)
    unbuilt = [each.name for each in held_by(model, keras.optimizers.Optimizer) if not each.built]
    refuse(PlanError, check_optimizers_built(unbuilt))


def metric_values(model: keras.Model) -> list[np.ndarray]:
    """Returns the values of a model's metrics, summed over all replicas."""
    return [_read(variable) for variable in model.metrics_variables]


def _groups(model: keras.Model) -> dict[str, list[Any]]:
    """Returns the variables that training changes; metrics are kept apart, as they are reset."""
    metrics = {id(variable) for variable in model.metrics_variables}
    weights = [each for each in model.variables if id(each) not in metrics]
    optimizers = held_by(model, keras.optimizers.Optimizer)
    return {
        "model": [*weights, *held_by(model, tf.Variable)],
        "optimizer": [variable for each in optimizers for variable in each.variables],
    }


def _read(variable: Any) -> np.ndarray:
    value = value_of(variable)
    # NumPy's files know no bfloat16, and float32 holds each of its values.
    return value.astype("float32") if value.dtype.kind == "V" else value


def _assign(variables: list[Any], values: list[np.ndarray], group: str) -> None:
    shapes = [tuple(variable.shape) for variable in variables]
    saved = [value.shape for value in values]
    if shapes != saved:
        raise PlanError(
            Finding(
                "state-of-another-model",
                "error",
                what=f"The saved state holds {len(saved)} variables of the {group}, and this one "
                f"has {len(shapes)}, or their shapes differ.",
                why="Training goes on only with the model and optimizer that it was stopped with.",
                fix="Build the same model, or remove the directory to start anew.",
            )
        )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
