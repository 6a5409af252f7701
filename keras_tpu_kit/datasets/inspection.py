"""What can be said of training data without reading it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tpu_kit.checks.steps import INFINITE, UNKNOWN, array_batch_size
from keras_tpu_kit.datasets.flow import cardinality, declared_batch_size, rows_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """One tensor of each row.

    Args:
        name: As users spell it: `"x"`, `"x['age']"`, `"y"`, `"sample_weight"`.
        dtype: Name of its dtype.
        kind: `"dense"`, `"sparse"` or `"ragged"`.
        shape: Its axes, the batch axis first where the data is batched; `None` for an axis
            of open length.
    """

    name: str
    dtype: str
    kind: str
    shape: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFacts:
    """What is known about data before any of it is read.

    Args:
        kind: `"arrays"`, `"dataset"`, `"PyDataset"`, `"generator"`, `"distributed"`, or the
            name of its type.
        columns: Its tensors; empty where only reading would tell.
        num_samples: Rows of one pass, or `None`.
        num_batches: Batches of one pass; -1 if it never ends, -2 if unknown, `None` where
            elements are single rows.
        batch_size: Rows of a whole batch over all replicas, or `None`.
        last_batch_size: Rows of the batch that may be short, or `None`.
        is_batched: Whether `fit` would get batches. Arrays count: Keras cuts them.
        is_prefetched: Whether a dataset's last transformation is a prefetch; `None` where that
            does not apply.
    """

    kind: str
    columns: tuple[Column, ...]
    num_samples: int | None
    num_batches: int | None
    batch_size: int | None
    last_batch_size: int | None
    is_batched: bool
    is_prefetched: bool | None


def inspect_data(
    data: Any,
    *,
    batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    num_samples: int | None = None,
) -> DataFacts:
    """Returns what can be said of `data` without reading it.

    A `PyDataset` is asked for its first batch, since nothing else tells its columns; a
    dataset or a generator is never iterated.

    Args:
        data: What `fit` takes: arrays, or a tuple `(x, y)` or `(x, y, sample_weight)` of arrays
            or of dicts and lists of them; a `tf.data.Dataset`, distributed or not; a
            `keras.utils.PyDataset`; a generator.
        batch_size: As passed to `fit`, for arrays.
        steps_per_epoch: As passed to `fit`, for arrays.
        num_samples: Rows of the arrays that are meant, where it is not all of them.

    Example:

    >>> facts = inspect_data((np.zeros((100, 3)), np.zeros(100)), batch_size=32)
    >>> facts.num_samples, facts.num_batches, facts.last_batch_size
    (100, 4, 4)
    >>> [column.name for column in facts.columns]
    ['x', 'y']
    """
    if isinstance(data, tf.data.Dataset):
        return _inspect_dataset(data)
    if isinstance(data, tf.distribute.DistributedDataset):
        return _inspect_distributed(data)
    if isinstance(data, keras.utils.PyDataset):
        return _inspect_py_dataset(data)
    if inspect.isgenerator(data):
        return _opaque("generator")
    leaves = [leaf for _, leaf in named_columns(data)]
    if leaves and all(map(is_array, leaves)):
        return _inspect_arrays(data, batch_size, steps_per_epoch, num_samples)
    return _opaque(type(data).__name__)


def named_columns(data: Any) -> Iterator[tuple[str, Any]]:
    """Yields each tensor (or its spec) with its name, as `fit` tells them apart.

    Example:

    >>> list(named_columns(({"age": 1, "pay": 2}, 3)))
    [("x['age']", 1), ("x['pay']", 2), ('y', 3)]
    """
    if type(data) is not tuple:
        yield from _leaves("x", data)
        return
    for index, part in enumerate(data):
        name = ("x", "y", "sample_weight")[index] if index < 3 else f"data[{index}]"
        yield from _leaves(name, part)


def is_array(leaf: Any) -> bool:
    """Returns whether Keras takes `leaf` as an array: NumPy, tensors, pandas, SciPy."""
    return (
        isinstance(leaf, (np.ndarray, tf.RaggedTensor, tf.SparseTensor))
        or tf.is_tensor(leaf)
        or is_scipy_sparse(leaf)
        or hasattr(leaf, "__array__")
    )


def is_scipy_sparse(leaf: Any) -> bool:
    """Returns whether `leaf` is a SciPy matrix, without importing SciPy."""
    return type(leaf).__module__.startswith("scipy.sparse")


def _leaves(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    """Yields the tensors below `part`, named by their path; a missing part has none."""
    if isinstance(part, Mapping):
        for key, value in part.items():
            yield from _leaves(f"{name}[{key!r}]", value)
    elif isinstance(part, (list, tuple)):
        for index, value in enumerate(part):
            yield from _leaves(f"{name}[{index}]", value)
    elif part is not None:
        yield name, part


def _kind(leaf: Any) -> str:
    """Returns `"sparse"`, `"ragged"` or `"dense"` for a tensor or its spec."""
    if isinstance(leaf, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        return "ragged"
    if is_scipy_sparse(leaf) or isinstance(leaf, (tf.SparseTensor, tf.SparseTensorSpec)):
        return "sparse"
    return "dense"


def _dtype(leaf: Any) -> str:
    """Returns the name of a column's dtype; `"string"` for text in any spelling."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:  # A pandas DataFrame has one per column.
        dtype = np.asarray(leaf[:1]).dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "SU":
        return "string"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        first = np.ravel(np.asarray(leaf[:1]))[:1].tolist()
        return "string" if first and isinstance(first[0], (str, bytes)) else "object"
    return str(getattr(dtype, "name", dtype))


def _columns(data: Any, *, open_batch: bool) -> tuple[Column, ...]:
    """Returns the columns of arrays, batches or specs."""
    columns = []
    for name, leaf in named_columns(data):
        shape = getattr(leaf, "shape", tf.TensorShape(None))
        axes = () if getattr(shape, "rank", 0) is None else tuple(shape)
        columns.append(
            Column(
                name=name,
                dtype=_dtype(leaf),
                kind=_kind(leaf),
                shape=(None, *axes[1:]) if open_batch else axes,
            )
        )
    return tuple(columns)


def _inspect_arrays(
    data: Any, batch_size: int | None, steps_per_epoch: int | None, num_samples: int | None
) -> DataFacts:
    rows = {int(leaf.shape[0]) for _, leaf in named_columns(data) if len(leaf.shape)}
    if len(rows) != 1:
        num_samples = None
    elif num_samples is None:
        num_samples = rows.pop()
    size = last = None
    batches = UNKNOWN
    if num_samples is not None:
        size = array_batch_size(num_samples, steps_per_epoch, batch_size)
        batches = -(-num_samples // size)
        last = num_samples - (batches - 1) * size if batches else None
    return DataFacts(
        kind="arrays",
        columns=_columns(data, open_batch=True),
        num_samples=num_samples,
        num_batches=batches,
        batch_size=size,
        last_batch_size=last,
        is_batched=True,
        is_prefetched=None,
    )


def _inspect_dataset(dataset: tf.data.Dataset, kind: str = "dataset") -> DataFacts:
    flow = rows_of(dataset)
    return DataFacts(
        kind=kind,
        columns=_columns(dataset.element_spec, open_batch=False),
        num_samples=flow.num_samples,
        num_batches=cardinality(dataset) if flow.is_batched else None,
        batch_size=flow.batch_size,
        last_batch_size=flow.last_batch_size,
        is_batched=flow.is_batched,
        is_prefetched=_ends_in_prefetch(dataset),
    )


def _ends_in_prefetch(dataset: tf.data.Dataset) -> bool:
    """Returns whether only options stand behind the last prefetch."""
    while type(dataset).__name__ == "_OptionsDataset":
        dataset = dataset._inputs()[0]
    return type(dataset).__name__ == "_PrefetchDataset"


def _inspect_distributed(data: Any) -> DataFacts:
    original = getattr(data, "_original_dataset", None)
    if original is not None:
        # tf.distribute prefetches the pieces it cuts, whatever the dataset did.
        return dataclasses.replace(_inspect_dataset(original, "distributed"), is_prefetched=True)
    facts = _opaque("distributed")
    # Unlike a dataset's, a distributed dataset's cardinality is a property.
    return dataclasses.replace(facts, num_batches=int(getattr(data, "cardinality", UNKNOWN)))


def _inspect_py_dataset(data: keras.utils.PyDataset) -> DataFacts:
    batches = data.num_batches
    first = data[0] if batches is None or batches else ()
    first = tuple(first) if isinstance(first, list) else first
    specs = tf.nest.map_structure(_batch_spec, first)
    return DataFacts(
        kind="PyDataset",
        columns=_columns(specs, open_batch=True),
        num_samples=None,
        num_batches=INFINITE if batches is None else int(batches),
        batch_size=declared_batch_size(specs) if specs else None,
        last_batch_size=None,
        is_batched=True,
        is_prefetched=None,
    )


def _batch_spec(leaf: Any) -> tf.TensorSpec:
    """Returns the spec of one array of a batch."""
    array = leaf if tf.is_tensor(leaf) else np.asarray(leaf)
    return tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))


def _opaque(kind: str) -> DataFacts:
    return DataFacts(
        kind=kind,
        columns=(),
        num_samples=None,
        num_batches=UNKNOWN,
        batch_size=None,
        last_batch_size=None,
        is_batched=True,
        is_prefetched=None,
    )


__all__ = ["Column", "DataFacts", "inspect_data", "is_array", "named_columns"]
