"""Lets a step run and leaves no trace of it in any variable, on any replica."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.placement import held_by

# Of these a model's own list of variables leaves some out.
_WITH_VARIABLES = (keras.optimizers.Optimizer, keras.Metric)


def variables_of(model: Any) -> list[Any]:
    """Returns the variables that a model's own step may change, beside those only its graph knows.

    Args:
        model: A compiled Keras model; its optimizers, metrics and seeds are looked through, too.
    """
    own = [*model.variables, *model.metrics_variables, *held_by(model, tf.Variable)]
    for part in held_by(model, _WITH_VARIABLES):
        own += part.variables
    return [each.value if isinstance(each, keras.Variable) else each for each in own]


@contextlib.contextmanager
def left_as_they_were(strategy: tf.distribute.Strategy, variables: list[Any]) -> Iterator[None]:
    """Gives every replica's copy of the variables its value back when the block is left.

    Args:
        strategy: The strategy that the variables belong to.
        variables: Variables, or single copies of them, of any shape and dtype; some may be there
            twice.
    """
    copies = {
        id(copy): copy
        for variable in variables
        for copy in strategy.experimental_local_results(variable)
    }
    before = {key: copy.numpy() for key, copy in copies.items()}
    try:
        yield
    finally:
        for key, copy in copies.items():
            copy.assign(before[key])
