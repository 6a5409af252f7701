"""What is refused before a model trains on several replicas."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import keras

from keras_tpu_kit.checks.model import check_jit_compile, check_step_clips, check_step_names
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.placement import placement_findings

_OVERRIDABLE = ("train_step", "test_step", "compute_loss")


def refuse_model(model: keras.Model) -> None:
    """Raises if something in a built model cannot be made right on its replicas.

    Raises:
        ReplicationError: If a variable was made outside the strategy's scope, XLA is asked for
            explicitly, or a custom step divides by the number of replicas, or clips gradients,
            itself.
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas == 1:
        return
    for finding in placement_findings(model, model.distribute_strategy):
        refuse(ReplicationError, finding)
    refuse(ReplicationError, check_jit_compile(model.jit_compile, replicas))
    for name in _OVERRIDABLE:
        if is_custom(model, name):
            code = inspect.unwrap(getattr(type(model), name)).__code__
            names = list(names_in(code))
            refuse(ReplicationError, check_step_names(name, names))
            refuse(ReplicationError, check_step_clips(name, names))


def names_in(code: CodeType) -> Iterator[str]:
    """Yields what a function's code refers to, the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def is_custom(model: Any, name: str) -> bool:
    """Returns whether a model's class brings its own version of a Keras method."""
    return not getattr(type(model), name).__module__.startswith("keras.")


def own_part(model: Any) -> str | None:
    """Returns what of a training step is not Keras's own, such as `"train_step"`, if anything."""
    for name in ("train_step", "compute_loss"):
        if is_custom(model, name):
            return name
    for layer in model._flatten_layers():
        if is_custom(layer, "call") and _may_add_loss(type(layer)):
            return f"add_loss in layer {layer.name!r}"
    return None


def _may_add_loss(layer: type) -> bool:
    """Returns whether a method of a layer's own class, or of one that it extends, adds a loss."""
    own = [part for part in layer.__mro__ if not part.__module__.startswith(("keras.", "builtins"))]
    for method in (value for part in own for value in vars(part).values()):
        # A tf.function holds the function that it was made of.
        function = inspect.unwrap(getattr(method, "python_function", method))
        code = getattr(function, "__code__", None)
        if code is not None and "add_loss" in names_in(code):
            return True
    return False
