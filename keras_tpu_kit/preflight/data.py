"""Draws a few batches: are they what they say, and do they come fast enough?"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.checks import tpu as rules
from keras_tpu_kit.datasets.inspection import named_columns
from keras_tpu_kit.errors import Finding

MOST_BATCHES = 16
MOST_SECONDS = 3.0

_PYTHON_OPS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
_READERS = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset", "ReadFile",
            "MatchingFiles", "MatchingFilesDataset", "LMDBDataset")  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a bounded number of batches showed.

    Args:
        batches: Batches drawn.
        rows: Rows in them.
        rows_per_second: Rows delivered per second after the first batch, on this machine, or
            `None` where one batch was all there was.
        findings: What is wrong with them.
    """

    batches: int
    rows: int
    rows_per_second: float | None
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as a dict of JSON types."""
        return {
            "batches": self.batches,
            "rows": self.rows,
            "rows_per_second": self.rows_per_second,
        }


def draw(
    dataset: Iterable[Any],
    *,
    clock: Callable[[], float],
    num_classes: int | None = None,
    ignored_label: int | None = None,
    most_batches: int = MOST_BATCHES,
    most_seconds: float = MOST_SECONDS,
) -> Drawn:
    """Returns what the first batches of a dataset show.

    Args:
        dataset: Yields batches as `fit` gets them.
        clock: Gives seconds.
        num_classes: Outputs that integer labels choose from, or `None`.
        ignored_label: A label that the loss leaves out, or `None`.
        most_batches: Batches after which to stop.
        most_seconds: Seconds after which to stop.

    Example:

    >>> import time
    >>> rows = tf.data.Dataset.from_tensors((tf.ones((4, 2)), tf.constant([0, 1, 2, 9])))
    >>> drawn = draw(rows.repeat(), clock=time.perf_counter, num_classes=3, most_batches=2)
    >>> drawn.rows, [finding.code for finding in drawn.findings]
    (8, ['labels-out-of-range'])
    """
    bad: dict[str, int] = {}
    labels: list[int] = []
    batches = rows = timed_rows = 0
    delivering = 0.0
    start = before = clock()
    for batch in dataset:
        now = clock()
        if batches:
            delivering += now - before
        count = 0
        for name, leaf in named_columns(batch):
            values = np.asarray(leaf) if not isinstance(leaf, tf.RaggedTensor) else None
            if values is None or not values.ndim:
                continue
            count = len(values)
            if np.issubdtype(values.dtype, np.floating):
                wrong = ~np.isfinite(values.reshape(count, -1)).all(axis=1)
                bad[name] = bad.get(name, 0) + int(wrong.sum())
            elif name == "y" and np.issubdtype(values.dtype, np.integer):
                counted = values if ignored_label is None else values[values != ignored_label]
                labels += [int(counted.min()), int(counted.max())] if counted.size else []
        timed_rows += count if batches else 0
        batches, rows = batches + 1, rows + count
        before = clock()
        if batches >= most_batches or before - start > most_seconds:
            break
    found = [rules.check_finite(name, wrong, rows) for name, wrong in bad.items()]
    if num_classes is not None and labels:
        found.append(rules.check_labels(min(labels), max(labels), num_classes))
    return Drawn(
        batches=batches,
        rows=rows,
        rows_per_second=timed_rows / delivering if timed_rows and delivering else None,
        findings=tuple(finding for finding in found if finding is not None),
    )


def remote_findings(
    data: Any, callbacks: Sequence[keras.callbacks.Callback], *, is_remote: bool
) -> tuple[Finding, ...]:
    """Returns what keeps a remote TPU's host from reading the data and writing the results.

    Args:
        data: The training data.
        callbacks: As passed to `fit`.
        is_remote: Whether the TPU is on another machine than the program.
    """
    if not is_remote:
        return ()
    nodes = list(_nodes(data)) if isinstance(data, tf.data.Dataset) else []
    uses_python = any(node.op in _PYTHON_OPS for node in nodes)
    reads = any(node.op.startswith(_READERS) for node in nodes)
    paths = list(_local_paths(nodes)) if reads else []
    found = (
        rules.check_remote_files(paths, is_remote),
        rules.check_remote_files(list(_written(callbacks)), is_remote),
        rules.check_remote_python(uses_python or isinstance(data, keras.utils.PyDataset), True),
    )
    return tuple(finding for finding in found if finding is not None)


def batch_hooks(callbacks: Sequence[keras.callbacks.Callback]) -> tuple[str, ...]:
    """Returns the names of callbacks that make Keras wait for the device at each batch."""
    base = keras.callbacks.Callback
    hooks = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    return tuple(
        type(callback).__name__
        for callback in callbacks
        if not getattr(callback, "async_safe", False)
        and any(getattr(type(callback), hook) is not getattr(base, hook) for hook in hooks)
    )


def _nodes(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields the nodes of a dataset's graph, those of its functions included."""
    text = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=1
    )
    graph = tf.compat.v1.GraphDef.FromString(text.numpy())
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _local_paths(nodes: Sequence[Any]) -> Iterator[str]:
    """Yields the constants of a graph that look like paths on this machine."""
    for node in nodes:
        if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
            for value in np.ravel(tf.make_ndarray(node.attr["value"].tensor)):
                text = value.decode(errors="replace")
                if os.sep in text and "://" not in text:
                    yield text


def _written(callbacks: Sequence[keras.callbacks.Callback]) -> Iterator[str]:
    """Yields the local paths that callbacks write to."""
    for callback in callbacks:
        for attribute in ("filepath", "backup_dir", "_backup_dir", "log_dir", "filename"):
            path = getattr(callback, attribute, None)
            if isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path):
                yield os.fspath(path)
                break
