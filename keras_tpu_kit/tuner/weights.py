"""Keeps the weights of a trial's best epoch, and writes them once."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_tpu_kit.tuner.project import files


class BestWeights:
    """Holds a copy of the variables of the best epoch in memory until the trial ends.

    Args:
        objective: A `keras_tuner.Objective`, which says what is better.
    """

    def __init__(self, objective: Any) -> None:
        self._objective = objective
        self.value: float | None = None
        self.values: list[np.ndarray[Any, Any]] = []
        # Whether the last epoch that was offered is the best.
        self.is_latest = False

    def offer(self, model: keras.Model, value: float | None) -> None:
        """Copies the model's variables, if this epoch is the best of the trial so far.

        Args:
            model: The model after the epoch.
            value: Its objective, or `None` where it is not known yet; then the last epoch counts.
        """
        self.is_latest = (
            value is None or self.value is None or self._objective.better_than(value, self.value)
        )
        if self.is_latest:
            self.value = value
            self.values = [_read(variable) for variable in variables_of(model)]

    def resume(
        self, model: keras.Model, value: float | None, values: list[np.ndarray[Any, Any]] | None
    ) -> None:
        """Takes over the best epoch of a trial that was broken off.

        Args:
            model: The model after the last epoch that was saved.
            value: The objective of the best epoch.
            values: Its variables, or `None` if they are the model's own.
        """
        own = [_read(variable) for variable in variables_of(model)]
        self.value, self.is_latest = value, values is None
        # NumPy's files do not know the types of accelerators and keep bytes.
        self.values = (
            own
            if values is None
            else [
                each.view(mine.dtype) if each.dtype.kind == "V" else each
                for each, mine in zip(values, own, strict=True)
            ]
        )

    def write(self, model: keras.Model, path: str) -> None:
        """Writes the best variables as a `.weights.h5` file, in one step.

        Args:
            model: The model that was trained last; it ends up with the best variables.
            path: The file.
        """
        if self.values:
            for variable, value in zip(variables_of(model), self.values, strict=True):
                variable.assign(value)
        with files.replaced(path, keep_previous=False) as unfinished:
            model.save_weights(unfinished)


def restore(model: keras.Model, path: str) -> None:
    """Loads what `BestWeights.write` wrote, the optimizer's state included.

    Args:
        model: A built and compiled model of the same architecture, in whose scope this runs.
        path: The file.
    """
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model.load_weights(path)


def variables_of(model: keras.Model) -> list[Any]:
    """Returns all variables that training changes."""
    optimizer = model.optimizer.variables if model.optimizer is not None else []
    return [*model.weights, *optimizer]


def _read(variable: Any) -> np.ndarray[Any, Any]:
    return np.array(keras.ops.convert_to_numpy(variable))
