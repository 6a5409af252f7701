"""Keeps the weights of a trial's best epoch, and writes them once."""

from __future__ import annotations

import pathlib
from typing import Any

import keras
import numpy as np


class BestWeights:
    """Holds a copy of the variables of the best epoch in memory until the trial ends.

    Args:
        objective: A `keras_tuner.Objective`, which says what is better.
    """

    def __init__(self, objective: Any) -> None:
        self._objective = objective
        self._best: float | None = None
        self._values: list[np.ndarray[Any, Any]] = []
        self._model: keras.Model | None = None

    def offer(self, model: keras.Model, value: float | None) -> None:
        """Copies the model's variables, if this epoch is the best of the trial so far.

        Args:
            model: The model after the epoch.
            value: Its objective, or `None` where it is not known yet; then the last epoch counts.
        """
        is_better = (
            value is None or self._best is None or self._objective.better_than(value, self._best)
        )
        if is_better:
            self._best, self._model = value, model
            self._values = [_read(variable) for variable in variables_of(model)]

    def write(self, model: keras.Model, path: str) -> None:
        """Writes the best variables as a `.weights.h5` file, in one step.

        Args:
            model: The model that was trained last; it ends up with the best variables.
            path: The file.
        """
        if self._values:
            for variable, value in zip(variables_of(model), self._values, strict=True):
                variable.assign(value)
        unfinished = path.replace(".weights.h5", ".unfinished.weights.h5")
        model.save_weights(unfinished)
        pathlib.Path(unfinished).replace(path)


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
