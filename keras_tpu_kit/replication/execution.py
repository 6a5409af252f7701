"""One call of the train or test function: `steps_per_execution` steps fused in one graph."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_tpu_kit.checks.model import check_on_batch
from keras_tpu_kit.errors import ReplicationError, refuse
from keras_tpu_kit.replication import batches, host_memory, normalization, padding
from keras_tpu_kit.replication.own_metrics import asked_at_first_update
from keras_tpu_kit.replication.progress import Progress
from keras_tpu_kit.replication.refusals import is_custom
from keras_tpu_kit.replication.share import ReplicaShare, current_share, running

Logs = dict[str, Any]


class Feed(NamedTuple):
    """What is known of a dataset before a step runs.

    Args:
        may_end: Whether it can end before an execution has run all of its steps.
        rows: Rows of every global batch, where several workers have agreed on it.
    """

    may_end: bool = True
    rows: int | None = None


class Execution:
    """Runs a model's own step on every replica, several times in one `tf.function`.

    Args:
        model: A built and compiled Keras model.
        name: `"train_step"` or `"test_step"`.
        progress: Where executions, steps and waiting are counted.
    """

    def __init__(self, model: Any, name: str, progress: Progress) -> None:
        self._model = model
        self._strategy = model.distribute_strategy
        self._several = self._strategy.num_replicas_in_sync > 1
        self._on_cpu = self._several and batches.is_on_cpu(self._strategy)
        self._steps = int(model.steps_per_execution)
        self._progress = progress
        self._name = f"{name.removesuffix('_step')}_on_batch"
        self._is_custom = is_custom(model, name)
        self._statistics, self._own_statistics = [], []
        if self._several and name == "train_step":
            self._statistics = normalization.statistics_of(model)
            self._own_statistics = normalization.statistics_of(model, of_own_layers=True)
        # What a custom step logs beside metrics: known once it was traced, needed before.
        self._own_logs: Logs = {}
        self._metric_names: set[str] = set()
        self._step = model._autoconvert_optionals(getattr(model, name))
        self._fused = self._run_steps
        self._single = self._run_batch
        if not model.run_eagerly:
            if model.jit_compile:
                self._step = tf.function(self._step, reduce_retracing=True, jit_compile=True)
            self._fused, self._single = _in_graph(self._run_steps), _in_graph(self._run_batch)

    def __call__(self, iterator: Any, feed: Feed) -> Logs:
        """Returns the logs after the next steps of `iterator`.

        Args:
            iterator: A `tf.data` or distributed iterator, or a Python iterator of batches.
            feed: What is known of the data that it iterates over.

        Raises:
            StopIteration: If no step was left to run.
        """
        if not isinstance(iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)):
            workers = batches.num_processes(self._strategy)
            refuse(ReplicationError, check_on_batch(self._name, workers))
            for _, batch in zip(range(self._steps), iterator, strict=False):
                logs = self._single(batches.split(self._strategy, batch))
                self._progress.add(1, 0.0)
            return logs
        if self._on_cpu and isinstance(iterator, tf.distribute.DistributedIterator):
            # Each time: an evaluation in between makes an iterator of its own.
            host_memory.keep_between_steps()
        try:
            logs, steps, waited = self._fused(iterator, feed)
        except _OwnLogsFoundError as found:
            self._own_logs = found.logs
            logs, steps, waited = self._fused(iterator, feed)
        if feed.may_end:
            steps = int(steps)
            if not steps:
                raise StopIteration
        else:
            steps = self._steps
        self._progress.add(steps, waited)
        return logs

    def _run_batch(self, data: Any) -> Logs:
        own = self._run_step(data)
        return self._finish(own)

    def _run_steps(self, iterator: Any, feed: Feed) -> tuple[Logs, Any, Any]:
        """Returns logs, steps done and seconds waited for input."""

        def body(steps: Any, waited: Any, more: Any, own: Logs) -> tuple[Any, Any, Any, Logs]:
            if not feed.may_end:
                data, seconds = _timed(iterator.get_next)
                own = self._loop_logs(self._run_step(data, feed.rows))
                return steps + 1, waited + seconds, more, own
            upcoming, seconds = _timed(iterator.get_next_as_optional)
            more = upcoming.has_value()
            own = tf.cond(
                more,
                lambda: self._loop_logs(self._run_step(upcoming.get_value(), feed.rows)),
                lambda: own,
            )
            return steps + tf.cast(more, "int32"), waited + seconds, more, own

        nothing = {key: tf.zeros(spec.shape, spec.dtype) for key, spec in self._own_logs.items()}
        start = (tf.constant(0), tf.constant(0.0, "float64"), tf.constant(True), nothing)
        if self._model.run_eagerly:
            state = start
            while int(state[0]) < self._steps and bool(state[2]):
                state = body(*state)
        elif self._steps == 1:
            state = body(*start)
        else:
            state = tf.while_loop(
                lambda steps, waited, more, own: tf.logical_and(steps < self._steps, more),
                body,
                start,
                maximum_iterations=self._steps,
            )
        steps, waited, _, own = state
        return self._finish(own), steps, waited

    def _loop_logs(self, own: Logs) -> Logs:
        if own.keys() != self._own_logs.keys():
            raise _OwnLogsFoundError(own)
        return {key: tf.cast(value, self._own_logs[key].dtype) for key, value in own.items()}

    def _run_step(self, data: Any, rows: int | None = None) -> Logs:
        """Runs one step on every replica and returns what it logs beside metrics."""
        if not self._several:
            logs = self._strategy.run(self._step, args=(data,))
            if self._is_custom:
                return dict(logs)
            return self._beside_metrics(logs)
        if not batches.is_split(data):
            data = batches.split_in_graph(self._strategy, data)
        total = batches.count_rows(self._strategy, data, rows)
        with asked_at_first_update(self._model):
            own = self._strategy.run(lambda data: self._on_replica(data, total), args=(data,))
        return {
            key: self._strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None)
            for key, value in own.items()
        }

    def _on_replica(self, data: Any, total: Any) -> Logs:
        rows = batches.rows_of(data, like=total)
        mask = None
        if isinstance(data, padding.Padded):
            data, mask = data
        if self._on_cpu:
            data = batches.in_memory_of_its_own(data)
        share = ReplicaShare(rows, total, mask, loss_tracker=self._model._loss_tracker)
        with running(share):
            with normalization.kept_where_empty(share, self._own_statistics):
                logs = self._step(data)
            if mask is not None:
                padding.refuse_own_losses(self._model)
            own = self._beside_metrics(logs)
            return {key: _weighed(tf.convert_to_tensor(own[key]), share) for key in own}

    def _beside_metrics(self, logs: Logs) -> Logs:
        with tf.__internal__.FuncGraph("names").as_default():
            results = self._model.get_metrics_result()
        share = current_share()
        if self._is_custom and share is not None and not share.loss_is_tracked:
            results.pop(self._model._loss_tracker.name, None)
        self._metric_names = results.keys() & logs.keys()
        return {key: value for key, value in logs.items() if key not in self._metric_names}

    def _finish(self, own: Logs) -> Logs:
        """Brings replicas together after the last step and returns the logs."""
        normalization.bring_together(self._strategy, self._statistics)
        if not self._metric_names:
            return own
        results = self._model.get_metrics_result()
        return {key: results[key] for key in results if key in self._metric_names} | own


def _in_graph(method: Callable[..., Any]) -> Any:
    # TensorFlow counts how often one piece of code is traced, and would warn of retracing where a
    # search only trains one model after another; a partial function shows it none.
    return tf.function(functools.partial(method), autograph=False, reduce_retracing=True)


class _OwnLogsFoundError(Exception):
    """A custom step was found to log values of its own; the loop must start with such."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self.logs = {
            key: tf.TensorSpec(tf.convert_to_tensor(value).shape, tf.convert_to_tensor(value).dtype)
            for key, value in logs.items()
        }


def _weighed(value: Any, share: ReplicaShare) -> Any:
    value = value if value.dtype.is_floating else tf.cast(value, "float32")
    return share.where_not_empty(share.weigh(value), tf.zeros_like(value))


def _timed(get: Callable[[], Any]) -> tuple[Any, Any]:
    """Returns what `get` returns and the seconds that took.

    The value is there only after the second look at the clock. Else a processor with few threads
    would begin the step first, and the step would count as waiting.
    """
    before = tf.timestamp()
    with tf.control_dependencies([before]):
        value = get()
    is_optional = hasattr(value, "has_value")
    parts = tf.nest.flatten(value.has_value() if is_optional else value, expand_composites=True)
    with tf.control_dependencies([part for part in parts if tf.is_tensor(part)]):
        after = tf.timestamp()
    return _once(after, value), after - before


def _once(done: Any, value: Any) -> Any:
    """Returns `value`, there only when `done` is; each part stays on its device."""
    if hasattr(value, "has_value"):
        return _LaterOptional(done, value)

    def later(part: Any) -> Any:
        if not tf.is_tensor(part):
            return part
        with tf.control_dependencies([done]), tf.device(part.device or None):
            return tf.identity(part)

    parts = tf.nest.flatten(value, expand_composites=True)
    return tf.nest.pack_sequence_as(value, [later(part) for part in parts], expand_composites=True)


class _LaterOptional:
    """An optional batch whose presence is told only when `done` is."""

    def __init__(self, done: Any, optional: Any) -> None:
        self._done, self._optional = done, optional

    def has_value(self) -> Any:
        with tf.control_dependencies([self._done]):
            return tf.identity(self._optional.has_value())

    def get_value(self) -> Any:
        return self._optional.get_value()
