"""What is refused before a model trains on several replicas."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import keras

from keras_tpu_kit.checks.model import check_jit_compile, check_step_names
from keras_tpu_kit.errors import Finding, KitError, ReplicationError
from keras_tpu_kit.placement import placement_findings

_OVERRIDABLE = ("train_step", "test_step", "compute_loss")


def refuse(error: type[KitError], finding: Finding | None) -> None:
    """Raises `error` if there is a finding."""
    if finding is not None:
        raise error(finding)


def refuse_model(model: keras.Model) -> None:
    """Raises if something in a built model cannot be made right on its replicas.

    Raises:
        ReplicationError: If a variable was made outside the strategy's scope, XLA is asked for
            explicitly, or a custom step divides by the number of replicas itself.
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
            refuse(ReplicationError, check_step_names(name, list(names_in(code))))


def names_in(code: CodeType) -> Iterator[str]:
    """Yields what a function's code refers to, the functions inside it included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def is_custom(model: Any, name: str) -> bool:
    """Returns whether a model's class brings its own version of a Keras method."""
    return not getattr(type(model), name).__module__.startswith("keras.")
