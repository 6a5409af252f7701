"""The overrides that make one model's `fit`, `evaluate` and `predict` the kit's."""

from __future__ import annotations

import functools
import inspect
import logging
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks.model import check_model_strategy
from keras_tpu_kit.errors import Finding, ReplicationError, refuse
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import batches, preparation
from keras_tpu_kit.replication.chief_files import files_of_the_chief
from keras_tpu_kit.replication.custom_steps import ask_own_step
from keras_tpu_kit.replication.execution import Execution, Feed
from keras_tpu_kit.replication.padding import pad_evaluation
from keras_tpu_kit.replication.prediction import whole_batches_split
from keras_tpu_kit.replication.progress import Progress
from keras_tpu_kit.replication.refusals import refuse_model
from keras_tpu_kit.strategy import describe_strategy

_log = logging.getLogger("keras_tpu_kit")
_OVERRIDDEN = (
    "make_train_function",
    "make_test_function",
    "make_predict_function",
    "_maybe_symbolic_build",
    "fit",
)


class _Replicated:
    """Stands behind the overridden methods of one model."""

    def __init__(self, model: Any, static_shapes: bool) -> None:
        self.model = model
        self.static_shapes = static_shapes
        self.progress = Progress()
        # What Keras prepared last: for training, or for the evaluation within it.
        self._data: Any = None
        self._batch: Any = None
        self._feed = self._training_feed = self._evaluation_feed = Feed()
        # Where a step of the model's own could not be asked.
        self.unasked: Finding | None = None

    @functools.wraps(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        stock = functools.partial(type(self.model).fit, self.model)
        if not batches.in_several_processes(self.model.distribute_strategy):
            return stock(*args, **kwargs)
        call = inspect.signature(stock).bind(*args, **kwargs)
        is_chief = describe_strategy(self.model.distribute_strategy).is_chief
        with files_of_the_chief(call.arguments.pop("callbacks", None), is_chief) as callbacks:
            return stock(*call.args, **{**call.kwargs, "callbacks": callbacks})

    def make_train_function(self, force: bool = False) -> Any:
        if self._data is not None:
            if self.static_shapes:
                preparation.refuse_dynamic_batch(self._data)
            self._training_feed = self._feed
        if self.model.train_function is None or force:
            refuse_model(self.model)
            self.unasked = ask_own_step(self.model, self._batch, self.static_shapes)
            if self.unasked is not None:
                _log.warning("%s", self.unasked)
            execution = Execution(self.model, "train_step", self.progress)
            self.model.train_function = lambda it: execution(it, self._training_feed)
        return self.model.train_function

    def make_test_function(self, force: bool = False) -> Any:
        if self._data is not None:
            if self.static_shapes:
                pad_evaluation(self._data, self.model.distribute_strategy)
            self._evaluation_feed = self._feed
        if self.model.test_function is None or force:
            refuse_model(self.model)
            execution = Execution(self.model, "test_step", Progress())
            self.model.test_function = lambda it: execution(it, self._evaluation_feed)
        return self.model.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        if self.model.predict_function is None or force:
            type(self.model).make_predict_function(self.model, force=True)
            self.model.predict_function = whole_batches_split(
                self.model, self.model.predict_function
            )
        return self.model.predict_function

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        self._data = iterator
        strategy = self.model.distribute_strategy
        if iterator is not None:
            preparation.refuse_data(strategy, iterator)
            preparation.feed_whole_batches(strategy, iterator)
            data_batch = preparation.element_spec(iterator)
            self._feed = preparation.feed_of(strategy, iterator)
        self._batch = data_batch
        preparation.build(self.model, data_batch)


def replicate(
    model: keras.Model, plan: BatchPlan | None = None, *, static_shapes: bool | None = None
) -> keras.Model:
    """Makes a model train on every replica of its strategy as it would on one device.

    Call it once, any time after the model was made, compiled or not; it survives `compile`.
    What is saved, cloned or copied from the model is stock Keras.

    Args:
        model: A Keras model built in the scope of the strategy that shall train it.
        plan: The `BatchPlan` it will be fed by, where there is one.
        static_shapes: Whether every batch must have one shape; by default on a TPU only. Short
            batches of an evaluation are then filled up and the filling is masked.

    Returns:
        The same model.

    Raises:
        ReplicationError: If the plan is for another number of replicas than the model's.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> replicate(model) is model
    True
    """
    strategy = model.distribute_strategy
    if plan is not None:
        replicas = strategy.num_replicas_in_sync
        refuse(ReplicationError, check_model_strategy(replicas, plan.topology.num_replicas))
    if not is_replicated(model):
        if static_shapes is None:
            static_shapes = isinstance(strategy, tf.distribute.TPUStrategy)
        state = _Replicated(model, static_shapes)
        for name in _OVERRIDDEN:
            object.__setattr__(model, name, getattr(state, name))
        # A model that was trained before holds Keras's own, and would go on with them.
        model.train_function = model.test_function = model.predict_function = None
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


def unasked_step(model: keras.Model) -> Finding | None:
    """Returns a warning where a model trains by a step that could not be asked what it does."""
    state = _state_of(model)
    return None if state is None else state.unasked


def _state_of(model: Any) -> _Replicated | None:
    return getattr(vars(model).get("make_train_function"), "__self__", None)
