"""Whether all of a model lives on the replicas that shall train it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

import keras
import tensorflow as tf

from keras_tpu_kit.checks import model as model_checks
from keras_tpu_kit.errors import Finding

T = TypeVar("T")


def placement_findings(
    model: keras.Model, strategy: tf.distribute.Strategy | None = None
) -> tuple[Finding, ...]:
    """Returns a finding for each part of a model that was made outside its strategy's scope.

    Every variable, metric and the optimizer are looked at, not only what TensorFlow happens
    to reject: an SGD made outside, or a frozen backbone, trains wrongly without a word.

    Args:
        model: A model, compiled or not.
        strategy: The strategy that shall train it; by default the one in whose scope the
            call is made, or else the model's own.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> placement_findings(model)
    ()
    """
    if strategy is None:
        in_scope = tf.distribute.has_strategy()
        strategy = tf.distribute.get_strategy() if in_scope else model.distribute_strategy
    num_replicas = strategy.num_replicas_in_sync
    own_replicas = model.distribute_strategy.num_replicas_in_sync
    finding = model_checks.check_model_strategy(own_replicas, num_replicas)
    if finding is not None:
        return (finding,)
    found = []
    for owner, variables, may_be_wider in _parts(model):
        wider = max((_replicas_of(v) for v in variables), default=1)
        if wider > num_replicas and not may_be_wider:
            found.append(model_checks.part_on_more_replicas(owner, wider, num_replicas))
            continue
        outside = [v for v in variables if not _is_in_scope(v, strategy)]
        if not outside:
            continue
        more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
        finding = model_checks.check_variable_placement(
            outside[0].path + more, owner, False, num_replicas
        )
        if finding is not None:
            found.append(finding)
    return tuple(found)


def held_by(model: keras.Model, kind: type[T] | tuple[type[T], ...]) -> list[T]:
    """Returns what a model holds of a kind, as attributes or in lists and dicts of them.

    Keras knows one optimizer; a model with a step of its own may hold several.

    Args:
        model: Any Keras model.
        kind: As for `isinstance`.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd")
    >>> len(held_by(model, keras.optimizers.Optimizer))
    1
    """
    found: dict[int, T] = {}
    for value in vars(model).values():
        parts = value.values() if isinstance(value, dict) else value
        parts = parts if isinstance(value, dict | list | tuple) else [value]
        found.update({id(part): part for part in parts if isinstance(part, kind)})
    return list(found.values())


class _Part(NamedTuple):
    """Variables that belong together."""

    owner: str  # As users would name it.
    variables: list[Any]
    may_be_wider: bool = False  # Whether it may be on more replicas than the model.


def _parts(model: keras.Model) -> Iterator[_Part]:
    """Yields each part of a model that holds variables."""
    seen: set[int] = set()
    for layer in model.layers:
        seen.update(id(v) for v in layer.variables)
        yield _Part(f"layer {layer.name!r}", layer.variables)
    # `model.variables` holds the metrics' as well, which are named below.
    metrics = list(_metrics(model))
    seen.update(id(v) for metric in metrics for v in metric.variables)
    own = [*model.trainable_variables, *model.non_trainable_variables]
    yield _Part(f"model {model.name!r}", [v for v in own if id(v) not in seen])
    for optimizer in held_by(model, keras.optimizers.Optimizer):
        yield _Part(f"the optimizer {optimizer.name!r}", optimizer.variables)
    for metric in metrics:
        # A metric by itself counts on one replica, as the model trains on one.
        yield _Part(f"the metric {metric.name!r}", metric.variables, may_be_wider=True)


def _metrics(model: keras.Model) -> Iterator[keras.metrics.Metric]:
    """Yields the metrics of a model, those also that Keras has not looked at yet."""
    yield from model.metrics
    compiled = getattr(model, "_compile_metrics", None)
    # Keras unpacks the user's metrics at the first batch; a check at that time is too late.
    for given in ("_user_metrics", "_user_weighted_metrics"):
        leaves: Iterable[Any] = tf.nest.flatten(getattr(compiled, given, None))
        yield from (leaf for leaf in leaves if isinstance(leaf, keras.metrics.Metric))


def _is_in_scope(variable: Any, strategy: tf.distribute.Strategy) -> bool:
    """Whether a Keras variable was made in the scope of a strategy."""
    return bool(strategy.extended.variable_created_in_scope(variable.value))


def _replicas_of(variable: Any) -> int:
    """Returns on how many replicas a Keras variable was made."""
    strategy = getattr(variable.value, "_distribute_strategy", None)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)
