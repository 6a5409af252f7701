"""The overrides that make one model's `fit`, `evaluate` and `predict` the kit's."""

from __future__ import annotations

from typing import Any

import keras

from keras_tpu_kit.replication import preparation
from keras_tpu_kit.replication.execution import Execution
from keras_tpu_kit.replication.prediction import whole_batches_split
from keras_tpu_kit.replication.progress import Progress
from keras_tpu_kit.replication.refusals import refuse_model

_OVERRIDDEN = (
    "make_train_function",
    "make_test_function",
    "make_predict_function",
    "_maybe_symbolic_build",
)


class _Replicated:
    """Stands behind the overridden methods of one model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.progress = Progress()
        self.evaluation = Progress()
        self.may_end = True

    def make_train_function(self, force: bool = False) -> Any:
        if self.model.train_function is None or force:
            self.model.train_function = self._function("train_step", self.progress)
        return self.model.train_function

    def make_test_function(self, force: bool = False) -> Any:
        if self.model.test_function is None or force:
            self.model.test_function = self._function("test_step", self.evaluation)
        return self.model.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        if self.model.predict_function is None or force:
            type(self.model).make_predict_function(self.model, force=True)
            self.model.predict_function = whole_batches_split(
                self.model, self.model.predict_function
            )
        return self.model.predict_function

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        if iterator is None:
            self.may_end = True
            preparation.build(self.model, data_batch)
            return
        preparation.prepare_data(self.model.distribute_strategy, iterator)
        preparation.build(self.model, preparation.element_spec(iterator))
        self.may_end = preparation.may_end_early(iterator)

    def _function(self, step: str, progress: Progress) -> Any:
        refuse_model(self.model)
        execution = Execution(self.model, step, progress)

        def function(iterator: Any) -> Any:
            return execution(iterator, self.may_end)

        return function


def replicate(model: keras.Model, plan: Any = None) -> keras.Model:
    """Makes a model train on every replica of its strategy as it would on one device.

    Call it once, any time after the model was made, compiled or not; it survives `compile`.
    What is saved, cloned or copied from the model is stock Keras.

    Args:
        model: A Keras model built in the scope of the strategy that shall train it.
        plan: The `BatchPlan` it will be fed by, where there is one.

    Returns:
        The same model.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> replicate(model) is model
    True
    """
    if not is_replicated(model):
        state = _Replicated(model)
        for name in _OVERRIDDEN:
            object.__setattr__(model, name, getattr(state, name))
    return model


def restore(model: keras.Model) -> keras.Model:
    """Gives a replicated model Keras's own training back, and returns it."""
    if is_replicated(model):
        for name in _OVERRIDDEN:
            object.__delattr__(model, name)
        model.train_function = model.test_function = model.predict_function = None
    return model


def is_replicated(model: keras.Model) -> bool:
    """Returns whether the model went through `replicate`."""
    return _state_of(model) is not None


def progress(model: keras.Model) -> Progress:
    """Returns the counts of executions, steps and waiting of a replicated model's training."""
    state = _state_of(model)
    if state is None:
        raise ValueError("The model is stock Keras; call ktk.replicate(model) first.")
    return state.progress


def _state_of(model: Any) -> _Replicated | None:
    return getattr(vars(model).get("make_train_function"), "__self__", None)
