"""How rows flow through a `tf.data` pipeline, read off its transformations without running it."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flow:
    """Rows and batches of one pass through a dataset.

    Args:
        is_batched: Whether an element holds several rows.
        num_samples: Rows of one pass, or `None` where the pipeline does not tell.
        batch_size: Rows of a whole batch, or `None`.
        last_batch_size: Rows of the batch that may be shorter than the others, or `None`.
    """

    is_batched: bool
    num_samples: int | None = None
    batch_size: int | None = None
    last_batch_size: int | None = None


# TensorFlow exposes no public type for its transformations; their class names have not changed
# since 2.11, and tests/datasets/ holds each of them to what is said here.
_BATCH = {"_BatchDataset", "_ParallelBatchDataset", "_PaddedBatchDataset"}
_KEEPS_EVERY_ELEMENT = {
    "CacheDataset",
    "_AssertCardinalityDataset",
    "_MapDataset",
    "_OptionsDataset",
    "_ParallelMapDataset",
    "_PrefetchDataset",
    "_RestructuredDataset",
    "_ShuffleDataset",
}
_KEEPS_SOME_ELEMENTS = {
    "_FilterDataset",
    "_IgnoreErrorsDataset",
    "_RepeatDataset",
    "_ShardDataset",
    "_SkipDataset",
    "_TakeDataset",
    "_TakeWhileDataset",
    "_UniqueDataset",
}
_SINGLE_ROWS = {"_RangeDataset", "_TensorSliceDataset"}


_DECLARED = "_keras_tpu_kit_flow"


def declare(dataset: tf.data.Dataset, flow: Flow) -> tf.data.Dataset:
    """Returns `dataset`, of which `rows_of` will say `flow`; what is behind it is not asked."""
    setattr(dataset, _DECLARED, flow)
    return dataset


def rows_of(dataset: tf.data.Dataset) -> Flow:
    """Returns what the transformations of a dataset say of its rows, without iterating it.

    Transformations that this function does not know (a generator, an interleave) are judged
    by the shapes they declare.

    Example:

    >>> rows_of(tf.data.Dataset.range(10).batch(4).prefetch(1))
    Flow(is_batched=True, num_samples=10, batch_size=4, last_batch_size=2)
    """
    if hasattr(dataset, _DECLARED):
        declared_flow: Flow = getattr(dataset, _DECLARED)
        return declared_flow
    kind = type(dataset).__name__
    inputs = dataset._inputs()
    if kind in _BATCH:
        return _batched(cardinality(inputs[0]), int(dataset._batch_size), dataset._drop_remainder)
    if kind in _KEEPS_EVERY_ELEMENT:
        before = rows_of(inputs[0])
        # map() may merge or split batches where it changes what a batch holds.
        declared = declared_batch_size(dataset.element_spec)
        if before.is_batched and declared not in (None, before.batch_size):
            return Flow(is_batched=True, batch_size=declared)
        return before
    if kind in _KEEPS_SOME_ELEMENTS:
        return _some_elements(dataset, rows_of(inputs[0]))
    if kind == "_UnbatchDataset":
        return Flow(is_batched=False, num_samples=rows_of(inputs[0]).num_samples)
    if kind in _SINGLE_ROWS:
        return Flow(is_batched=False, num_samples=_known(cardinality(dataset)))
    if kind == "_ZipDataset":
        flows = {rows_of(each) for each in tf.nest.flatten(inputs)}
        if len(flows) == 1:
            return flows.pop()
    return _declared(dataset)


def cardinality(dataset: Any) -> int:
    """Returns the elements of one pass, -1 for infinitely many, -2 where unknown."""
    known = dataset.cardinality()
    return int(known.numpy() if hasattr(known, "numpy") else known)


def declared_batch_size(element_spec: Any) -> int | None:
    """Returns the size of the first axis where all columns declare the same one."""
    sizes = {spec.shape[0] if spec.shape.rank else None for spec in tf.nest.flatten(element_spec)}
    return sizes.pop() if len(sizes) == 1 else None


def _batched(rows: int, batch_size: int, drop_remainder: Any) -> Flow:
    """Returns the flow behind a batch of `rows` elements."""
    if rows < 0:
        return Flow(is_batched=True, batch_size=batch_size)
    rest = rows % batch_size
    if bool(tf.get_static_value(drop_remainder)):
        rows, rest = rows - rest, 0
    return Flow(
        is_batched=True,
        num_samples=rows,
        batch_size=batch_size,
        last_batch_size=rest or (batch_size if rows else None),
    )


def _some_elements(dataset: tf.data.Dataset, before: Flow) -> Flow:
    """Returns the flow behind a transformation that repeats or leaves out whole elements."""
    kind, elements = type(dataset).__name__, cardinality(dataset)
    all_elements = cardinality(dataset._inputs()[0])
    is_short = before.last_batch_size != before.batch_size
    if not before.is_batched:
        return Flow(is_batched=False, num_samples=_known(elements))
    if elements == all_elements >= 0 and kind != "_FilterDataset":
        return before
    if kind == "_RepeatDataset" and before.num_samples is not None:
        passes = elements // max(1, all_elements) if elements >= 0 else None
        return dataclasses.replace(
            before, num_samples=None if passes is None else passes * before.num_samples
        )
    if kind == "_TakeDataset" and 0 <= elements < all_elements:
        is_short = False  # The short batch is the last one, which take() leaves out.
        before = dataclasses.replace(before, last_batch_size=before.batch_size)
    if elements < 0 or before.batch_size is None or before.last_batch_size is None or is_short:
        # Which of the batches stay is not known here, so neither is where the short one went.
        return Flow(is_batched=True, batch_size=before.batch_size)
    return dataclasses.replace(before, num_samples=elements * before.batch_size)


def _declared(dataset: tf.data.Dataset) -> Flow:
    """Returns the flow that shapes alone suggest.

    Columns whose first axes are all open are batches. Columns whose first axes agree on a
    number are batches only where other axes differ: two columns of shape (28, 28) are images.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    shapes = [getattr(spec, "shape", tf.TensorShape(None)) for spec in specs]
    if any(not shape.rank for shape in shapes):
        return Flow(is_batched=False, num_samples=_known(cardinality(dataset)))
    sizes = {shape[0] for shape in shapes}
    if sizes == {None}:
        return Flow(is_batched=True)
    if len(sizes) == 1 and len({tuple(shape) for shape in shapes}) > 1:
        size = sizes.pop()
        batches = _known(cardinality(dataset))
        rows = None if batches is None else batches * size
        return Flow(is_batched=True, num_samples=rows, batch_size=size, last_batch_size=size)
    return Flow(is_batched=False, num_samples=_known(cardinality(dataset)))


def _known(elements: int) -> int | None:
    """Returns a cardinality that is a number, or `None`."""
    return None if elements < 0 else elements
