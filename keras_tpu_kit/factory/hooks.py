"""Holds the hooks of a `ModelFactory` to their contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import keras
import keras_tuner

from keras_tpu_kit.errors import FactoryError, Finding
from keras_tpu_kit.plan import BatchPlan


def call_with_hp(function: Callable[..., Any], hp: keras_tuner.HyperParameters) -> Any:
    """Calls a user's hook with the hyperparameters.

    Raises:
        FactoryError: If the hook does not take them.
    """
    try:
        inspect.signature(function).bind(hp)
    except TypeError:
        raise FactoryError(_no_hp(function)) from None
    return function(hp)


def call_with_or_without_hp(function: Callable[..., Any], hp: keras_tuner.HyperParameters) -> Any:
    """Calls a function that takes the hyperparameters or nothing at all."""
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return call_with_hp(function, hp) if required else function()


def require_function(function: Any) -> Callable[..., keras.Model]:
    """Returns what `from_function` was given, if it is a function that makes models.

    Raises:
        FactoryError: If it is a model already, or cannot be called.
    """
    if callable(function) and not isinstance(function, keras.Model):
        return function  # type: ignore[no-any-return]  # What it returns is held to it later.
    raise FactoryError(
        Finding(
            "hook-no-function",
            "error",
            what=f"from_function was given an object of {type(function).__qualname__!r}, not a "
            "function that returns a model.",
            why="The kit calls the function in the strategy's scope; a model that exists has its "
            "variables outside.",
            fix="Pass the function itself, from_function(get_compiled_model), without calling it.",
        )
    )


def require_model(model: Any, hook: str) -> keras.Model:
    """Returns what `hook` returned, if it is a Keras 3 model.

    Raises:
        FactoryError: If it is anything else.
    """
    if isinstance(model, keras.Model):
        return model
    legacy = any(base.__module__.startswith("tf_keras") for base in type(model).__mro__)
    if legacy:
        why = "Models of the legacy package tf_keras have another trainer than Keras 3."
        fix = "Import keras instead of tf_keras, and unset TF_USE_LEGACY_KERAS."
    elif model is None:
        why = "A function without a return statement returns None."
        fix = f"End {hook} with `return model`."
    else:
        why = "The kit compiles, replicates and trains a keras.Model."
        fix = f"Return a keras.Model from {hook}."
    kind = "None" if model is None else f"an object of {type(model).__qualname__!r}"
    raise FactoryError(
        Finding("hook-no-model", "error", f"{hook} returned {kind}, not a keras.Model.", why, fix)
    )


def require_compile_args(args: Any, hook: str) -> dict[str, Any]:
    """Returns a copy of what `hook` returned, if `keras.Model.compile` takes it.

    Raises:
        FactoryError: If it is no mapping, or names what `compile` does not know.
    """
    return _require_arguments(args, hook, "compile", '{"optimizer": "adam", "loss": "mse"}')


def require_fit_args(args: Any, hook: str) -> dict[str, Any]:
    """Returns a copy of what `hook` returned, if `keras.Model.fit` takes it.

    Raises:
        FactoryError: If it is no mapping, or names what `fit` does not know, or the data.
    """
    return _require_arguments(args, hook, "fit", '{"epochs": 10}', but=("validation_data",))


def _require_arguments(
    args: Any, hook: str, method: str, example: str, but: tuple[str, ...] = ()
) -> dict[str, Any]:
    if not isinstance(args, Mapping):
        raise FactoryError(
            Finding(
                "hook-no-arguments",
                "error",
                what=f"{hook} returned {args!r}, not a dict.",
                why=f"It gives the keyword arguments of model.{method}.",
                fix=f"Return a dict from {hook}, such as {example}.",
            )
        )
    parameters = inspect.signature(getattr(keras.Model, method)).parameters
    known = [name for name in parameters if name not in ("self", *but)]
    unknown = [name for name in args if name not in known]
    if unknown:
        raise FactoryError(
            Finding(
                "hook-unknown-argument",
                "error",
                what=f"{hook} returned {unknown[0]!r}, which model.{method} does not take there.",
                why=f"It takes {', '.join(known)}.",
                fix=f"Remove {unknown[0]!r} from what {hook} returns, or correct its name.",
            )
        )
    return dict(args)


def require_plan(plan: Any, hook: str) -> BatchPlan | None:
    """Returns what `hook` returned, if it is a plan or `None`.

    Raises:
        FactoryError: If it is anything else.
    """
    if plan is None or isinstance(plan, BatchPlan):
        return plan
    raise FactoryError(
        Finding(
            "hook-no-plan",
            "error",
            what=f"{hook} returned {plan!r}, not a BatchPlan.",
            why="The plan decides the steps, the datasets and the checks.",
            fix="Return self.plan, or dataclasses.replace(self.plan, per_replica_batch_size=...).",
        )
    )


def not_compiled(hook: str, *, is_factory: bool = True) -> Finding:
    """Returns the finding for a model that nobody says how to compile.

    Args:
        hook: What returned the model.
        is_factory: Whether it is the hook of a class that may say so elsewhere.
    """
    return Finding(
        "hook-not-compiled",
        "error",
        what=f"{hook} returned a model that is not compiled, and nothing says how to compile it.",
        why="Without an optimizer and a loss there is nothing to train.",
        fix=f"Compile the model in {hook}"
        + (", or override ModelFactory.compile_args." if is_factory else "."),
    )


def missing(hook: str, purpose: str) -> Finding:
    """Returns the finding for a hook that a subclass must override and did not."""
    return Finding(
        "hook-missing",
        "error",
        what=f"{hook} is not defined.",
        why=f"It says {purpose}.",
        fix=f"Define {hook} in your subclass of ModelFactory.",
    )


def _no_hp(function: Callable[..., Any]) -> Finding:
    name = getattr(function, "__qualname__", repr(function))
    return Finding(
        "hook-without-hp",
        "error",
        what=f"{name} does not take the hyperparameters.",
        why="One code path serves training and search; outside a search hp answers with the "
        "defaults.",
        fix=f"Give {name} one argument, hp.",
    )
