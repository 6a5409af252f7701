"""A metric of the user's own: do the parts that replicas count make that of the whole batch?

Replicas add up what metrics count, which is right for sums over rows. The sum of their maxima is
no maximum, and the sum of their means no mean, and a metric's code does not say which it is. So
it is asked, once, at its first update: a copy of it sees two small batches, whose counts are
added, and another their union.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import logging
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from keras import tree
from keras.src.saving.keras_saveable import KerasSaveable

from keras_tpu_kit.checks.model import check_own_metric, note_unasked_metric
from keras_tpu_kit.errors import ReplicationError
from keras_tpu_kit.replication.examples import ROWS, in_one_line, two_batches_and_both
from keras_tpu_kit.replication.share import ReplicaShare, running
from keras_tpu_kit.stock_training import TRACE_ERRORS

_log = logging.getLogger("keras_tpu_kit")
_asked: weakref.WeakSet[Any] = weakref.WeakSet()
_UPDATE = "update_state"


@contextlib.contextmanager
def asked_at_first_update(model: Any) -> Iterator[None]:
    """Asks each metric of the user's own that a model updates within the block.

    The update raises a `ReplicationError` if the parts of replicas do not make that of a batch.

    Args:
        model: A compiled Keras model.
    """
    metrics = [metric for metric in _own_metrics(model) if metric not in _asked]
    for metric in metrics:
        # Beside Keras's tracking, which would keep it.
        vars(metric)[_UPDATE] = _asking(metric, metric.update_state)
    try:
        yield
    finally:
        for metric in metrics:
            del vars(metric)[_UPDATE]


def _asking(metric: Any, update: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update)
    def update_state(*args: Any, **kwargs: Any) -> Any:
        if metric not in _asked:
            # In a thread of its own, which no strategy and no graph reaches.
            with ThreadPoolExecutor(1) as other:
                other.submit(_ask, metric, args, kwargs).result()
            _asked.add(metric)
        return update(*args, **kwargs)

    return update_state


def _own_metrics(model: Any) -> list[Any]:
    """Returns the metrics, and the functions as metrics, that are not Keras's."""
    found = []
    for metric in model.metrics:
        # Those of `compile` stand behind one.
        for each in getattr(metric, "metrics", None) or [metric]:
            function = getattr(each, "_fn", None)
            if any(
                _is_own(part) for part in (type(each).update_state, type(each).result, function)
            ):
                found.append(each)
    return found


def _is_own(function: Any) -> bool:
    return function is not None and not getattr(function, "__module__", "").startswith("keras.")


def _ask(metric: Any, args: Any, kwargs: Any) -> None:
    """Raises if a metric's parts do not add up; says so where it cannot be asked."""
    try:
        parts, whole = _results(metric, two_batches_and_both((args, kwargs)))
    except TRACE_ERRORS as error:
        _log.warning("%s", note_unasked_metric(metric.name, in_one_line(error)))
        return
    adds_up = np.allclose(parts, whole, rtol=1e-3, atol=1e-6, equal_nan=True)
    finding = check_own_metric(metric.name, bool(adds_up))
    if finding is not None:
        refusal = ReplicationError(finding)
        # A layer that updates the metric would else make it anew, of its text.
        refusal._keras_call_info_injected = True  # type: ignore[attr-defined]
        raise refusal


def _results(metric: Any, batches: tuple[Any, Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns a metric's result for two batches, counted apart and added, and for their union."""
    twin = _twin(metric)
    twin.reset_state()
    start = _values(twin)
    counts = []
    for (args, kwargs), rows in zip(batches, (*ROWS, sum(ROWS)), strict=True):
        twin.reset_state()
        with running(ReplicaShare(rows, sum(ROWS))):
            twin.update_state(*args, **kwargs)
        counts.append(_values(twin))
    whole = _result(twin)
    for variable, first, second, before in zip(twin.variables, *counts[:2], start, strict=True):
        variable.assign(first + second - before)
    return _result(twin), whole


def _values(metric: Any) -> list[np.ndarray]:
    return [keras.ops.convert_to_numpy(variable) for variable in metric.variables]


def _result(metric: Any) -> np.ndarray:
    leaves = [np.ravel(keras.ops.convert_to_numpy(each)) for each in tree.flatten(metric.result())]
    return np.concatenate(leaves).astype("float64")


def _twin(metric: Any) -> Any:
    """Returns a copy of a metric with variables of its own, which belong to no strategy.

    Its configuration cannot be relied on: few classes of users' own bring one.
    """
    memo: dict[int, Any] = {}
    originals: list[Any] = []

    def prepare(part: Any) -> None:
        originals.append(part)
        memo[id(part)] = object.__new__(type(part))
        for variable in part._variables:
            memo[id(variable)] = keras.Variable(
                np.zeros(variable.shape), dtype=variable.dtype, trainable=False
            )
        for inner in part._metrics:
            prepare(inner)
        for value in vars(part).values():
            # A model or an optimizer that it looks at is not its own.
            if isinstance(value, KerasSaveable) and not isinstance(value, keras.Metric):
                memo[id(value)] = value

    prepare(metric)
    for part in originals:
        own = {name: value for name, value in vars(part).items() if name != _UPDATE}
        vars(memo[id(part)]).update(copy.deepcopy(own, memo))
    return memo[id(metric)]
