"""Makes one kind of thing, a `ModelFactory`, of all that a search can be given to build."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import keras
import keras_tuner

from keras_tpu_kit.errors import FactoryError, Finding
from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.factory.hooks import not_compiled

Finish = Callable[[keras.Model], None]


def as_factory(
    hypermodel: Any, strategy: Any, finish: Finish, *, needs_model: bool = True
) -> ModelFactory:
    """Returns a factory for what the user gave; a factory is copied, so that its plan stays.

    Args:
        hypermodel: A `ModelFactory`, a `keras_tuner.HyperModel` or a function of the
            hyperparameters that returns a compiled model.
        strategy: A strategy or its name; `"auto"` leaves a factory its own.
        finish: Is called with each model that a hypermodel or function built, in scope, before
            anybody asks whether it is compiled.
        needs_model: Whether trials build models; otherwise `None` may be given.

    Raises:
        FactoryError: If it is neither.
    """
    if hypermodel is None and not needs_model:
        return ModelFactory(strategy)
    if isinstance(hypermodel, ModelFactory):
        factory = copy.copy(hypermodel)
        if not isinstance(strategy, str) or strategy != "auto":
            factory._strategy = strategy
        return factory
    if isinstance(hypermodel, type) and issubclass(hypermodel, ModelFactory):
        return hypermodel(strategy)
    is_model = isinstance(hypermodel, keras.Model)
    if isinstance(hypermodel, keras_tuner.HyperModel) or (callable(hypermodel) and not is_model):
        return HyperModelFactory(hypermodel, finish, strategy)
    raise FactoryError(_not_buildable(hypermodel))


class HyperModelFactory(ModelFactory):
    """Makes models with a `keras_tuner.HyperModel` or a build function."""

    def __init__(self, hypermodel: Any, finish: Finish, strategy: Any) -> None:
        super().__init__(strategy)
        self._hypermodel = hypermodel
        self._finish = finish

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns the model of the hypermodel, with what the tuner compiles it with."""
        build = getattr(self._hypermodel, "build", self._hypermodel)
        model = build(hp)
        if isinstance(model, keras.Model):
            self._finish(model)
        return model

    def compile_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        """Tells that nobody says how to compile what the hypermodel built."""
        raise FactoryError(not_compiled(self._builder, is_factory=False))

    @property
    def _builder(self) -> str:
        if isinstance(self._hypermodel, keras_tuner.HyperModel):
            return f"{type(self._hypermodel).__name__}.build"
        return str(getattr(self._hypermodel, "__name__", repr(self._hypermodel)))


class FactoryHyperModel(keras_tuner.HyperModel):  # type: ignore[misc]
    """Shows a factory to KerasTuner as a hypermodel.

    Args:
        factory: What makes the models.
        original: The `keras_tuner.HyperModel` whose `fit` and declarations count, or anything
            else.
    """

    def __init__(self, factory: ModelFactory, original: Any) -> None:
        is_hypermodel = isinstance(original, keras_tuner.HyperModel)
        super().__init__(
            name=original.name if is_hypermodel else None,
            tunable=original.tunable if is_hypermodel else True,
        )
        self.factory = factory
        self.original = original if is_hypermodel else None

    @property
    def says_objective(self) -> bool:
        """Whether the user's own `fit` may return an objective that no epoch logs."""
        original = self.original
        return original is not None and type(original).fit is not keras_tuner.HyperModel.fit

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns a compiled model on all replicas."""
        # Asked here as well, so that exploring the space meets its hyperparameters.
        self.factory.fit_args(hp)
        return self.factory.create(hp)

    def declare_hyperparameters(self, hp: keras_tuner.HyperParameters) -> None:
        """Lets the user's hypermodel name its hyperparameters in advance."""
        if self.original is not None:
            self.original.declare_hyperparameters(hp)

    def fit(
        self, hp: keras_tuner.HyperParameters, model: keras.Model, *args: Any, **kwargs: Any
    ) -> Any:
        """Trains as the user's hypermodel does, or as Keras does with the factory's arguments."""
        if self.original is not None:
            return self.original.fit(hp, model, *args, **kwargs)
        own = dict(self.factory.fit_args(hp))
        callbacks = [*own.pop("callbacks", ()), *(kwargs.pop("callbacks", None) or ())]
        # Hyperband says itself how long a trial trains.
        rounds = ("epochs", "initial_epoch") if "tuner/epochs" in hp.values else ()
        own = {name: value for name, value in own.items() if name not in rounds}
        return model.fit(*args, **{**kwargs, **own}, callbacks=callbacks)


def _not_buildable(hypermodel: Any) -> Finding:
    return Finding(
        "search-without-model",
        "error",
        what=f"{hypermodel!r} says nothing of how to build a model.",
        why="Each trial builds a model from its hyperparameters.",
        fix="Pass a ModelFactory, a keras_tuner.HyperModel, or a function of hp that returns a "
        "compiled model.",
    )
