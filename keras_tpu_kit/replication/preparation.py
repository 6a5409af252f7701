"""What happens before a model's first trace: the data is checked, and all variables are made.

Keras averages one batch over the replicas to learn its shapes, which fails for uneven, string
and bool batches and for several workers. The dataset's own `element_spec` says the same, and a
trace that makes variables cannot be fused, so model, metrics and optimizer are built here.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf
from keras import tree
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter

from keras_tpu_kit.checks.data import check_generator, check_input_kind
from keras_tpu_kit.errors import DataError, Finding

# Any number serves: shapes other than the batch are what building needs to know.
_BUILD_ROWS = 2


def prepare_data(strategy: tf.distribute.Strategy, epoch_iterator: Any) -> None:
    """Refuses data that replicas cannot share rightly.

    Args:
        strategy: The model's strategy.
        epoch_iterator: What Keras made of the user's data.

    Raises:
        DataError: If the data is a raw generator, or a column is sparse or ragged.
    """
    replicas = strategy.num_replicas_in_sync
    if isinstance(epoch_iterator.data_adapter, GeneratorDataAdapter):
        _refuse(check_generator("generator", replicas))
    for path, spec in tree.flatten_with_path(element_spec(epoch_iterator)):
        kind = {tf.SparseTensorSpec: "sparse", tf.RaggedTensorSpec: "ragged"}.get(type(spec))
        if kind:
            _refuse(check_input_kind(_column(path), kind, replicas))


def may_end_early(epoch_iterator: Any) -> bool:
    """Returns whether the data can end before an execution has run all of its steps."""
    batches = epoch_iterator.data_adapter.num_batches
    if batches is not None:
        return bool(batches % epoch_iterator.steps_per_execution)
    cardinality = getattr(epoch_iterator.data_adapter.get_tf_dataset(), "cardinality", None)
    known = cardinality() if callable(cardinality) else cardinality
    return known is None or int(known) != tf.data.INFINITE_CARDINALITY


def build(model: Any, batch: Any) -> None:
    """Makes all variables of model, metrics, losses and optimizer, in the strategy's scope.

    Args:
        model: A Keras model, compiled or not.
        batch: One batch, or `tf.TypeSpec`s of it; only shapes and dtypes are used.
    """
    needs_shapes = not all(layer.built for layer in model._flatten_layers()) or any(
        part is not None and not part.built
        for part in (model._compile_metrics, model._compile_loss)
    )
    scope = model._distribute_strategy.scope() if model._distribute_strategy else None
    with scope or contextlib.nullcontext():
        if needs_shapes:
            model._symbolic_build(data_batch=tree.map_structure(_to_symbolic, batch))
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def element_spec(epoch_iterator: Any) -> Any:
    """Returns the structure of one replica's batches, as `tf.TypeSpec`s."""
    return tree.map_structure(_first_replica, epoch_iterator._distributed_dataset.element_spec)


def _first_replica(spec: Any) -> Any:
    return getattr(spec, "_value_specs", (spec,))[0]


def _to_symbolic(part: Any) -> Any:
    if part is None or isinstance(part, (tf.OptionalSpec, tf.NoneTensorSpec if hasattr(tf, "NoneTensorSpec") else tf.OptionalSpec)):
        return None
    return tf.TensorSpec([_BUILD_ROWS, *part.shape[1:]], part.dtype)


def _column(path: tuple[Any, ...]) -> str:
    names = ("x", "y", "sample_weight")
    first = names[path[0]] if path and isinstance(path[0], int) and path[0] < 3 else "x"
    return first + "".join(f"[{key!r}]" for key in path[1:])


def _refuse(finding: Finding | None) -> None:
    if finding is not None:
        raise DataError(finding)
