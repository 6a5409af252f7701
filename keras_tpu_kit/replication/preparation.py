"""What happens before a model's first trace: the data is checked, and all variables are made.

Keras averages one batch over the replicas to learn its shapes, which fails for uneven, string
and bool batches and for several workers. The dataset's own `element_spec` says the same, and a
trace that makes variables cannot be fused, so model, metrics and optimizer are built here.
"""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import tensorflow as tf
from keras import tree
from keras.src import backend
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from keras_tpu_kit.checks.data import check_generator, check_input_kind
from keras_tpu_kit.checks.model import check_static_batch
from keras_tpu_kit.errors import DataError, refuse
from keras_tpu_kit.replication.batches import agreed_rows, in_several_processes, is_on_cpu
from keras_tpu_kit.replication.execution import Feed
from keras_tpu_kit.replication.refusals import refuse_model

# Any number serves where the model names none: shapes other than the batch are what building
# needs to know.
_BUILD_ROWS = 2


def refuse_data(strategy: tf.distribute.Strategy, epoch_iterator: Any) -> None:
    """Refuses data that replicas cannot share rightly.

    Args:
        strategy: The model's strategy.
        epoch_iterator: What Keras made of the user's data.

    Raises:
        DataError: If the data is a raw generator, or a column is sparse or ragged.
    """
    replicas = strategy.num_replicas_in_sync
    if isinstance(epoch_iterator.data_adapter, GeneratorDataAdapter):
        refuse(DataError, check_generator("generator", replicas))
    for path, spec in tree.flatten_with_path(element_spec(epoch_iterator)):
        kind = {tf.SparseTensorSpec: "sparse", tf.RaggedTensorSpec: "ragged"}.get(type(spec))
        if kind:
            refuse(DataError, check_input_kind(_column(path), kind, replicas))


def refuse_dynamic_batch(epoch_iterator: Any) -> None:
    """Raises a `DataError` if training batches may differ in size."""
    sizes = {spec.shape[0] for spec in tree.flatten(element_spec(epoch_iterator))}
    refuse(DataError, check_static_batch(None not in sizes))


def feed_whole_batches(strategy: tf.distribute.Strategy, epoch_iterator: Any) -> None:
    """Lets replicas that are all on this machine's CPU cut each batch inside the step.

    TensorFlow would run a prefetching thread for each replica, and more for each pass over the
    data, which carries batches to devices that share the host's memory anyway: with 8 replicas
    on two cores an epoch of 20 steps took 14 s with it, and 0.5 s without.

    Args:
        strategy: The model's strategy.
        epoch_iterator: What Keras made of the user's data.
    """
    adapter = epoch_iterator.data_adapter
    if not isinstance(epoch_iterator._distributed_dataset, tf.distribute.DistributedDataset):
        return  # Without a strategy, Keras distributes nothing.
    is_local_cpu = not in_several_processes(strategy) and is_on_cpu(strategy)
    if is_local_cpu and isinstance(adapter, ArrayDataAdapter | TFDatasetAdapter):
        epoch_iterator._distributed_dataset = adapter.get_tf_dataset()


def feed_of(strategy: tf.distribute.Strategy, epoch_iterator: Any) -> Feed:
    """Returns what is known of the data, on which several workers have to agree.

    Args:
        strategy: The model's strategy.
        epoch_iterator: What Keras made of the user's data.
    """
    rows = None
    if in_several_processes(strategy):
        rows = agreed_rows(strategy, epoch_iterator._distributed_dataset.element_spec)
    return Feed(_may_end_early(epoch_iterator), rows)


def _may_end_early(epoch_iterator: Any) -> bool:
    """Returns whether the data can end before an execution has run all of its steps."""
    batches = epoch_iterator.data_adapter.num_batches
    if batches is not None:
        return bool(batches % epoch_iterator.steps_per_execution)
    cardinality = getattr(epoch_iterator.data_adapter.get_tf_dataset(), "cardinality", None)
    # A distributed dataset has an attribute where others have a method.
    known = cardinality() if callable(cardinality) else cardinality
    return known is None or int(known) != tf.data.INFINITE_CARDINALITY


def build(model: Any, batch: Any) -> None:
    """Makes all variables of model, metrics, losses and optimizer, in the strategy's scope.

    Args:
        model: A compiled Keras model.
        batch: One batch, or `tf.TypeSpec`s of it; only shapes and dtypes are used.

    Raises:
        ReplicationError: If a variable was made outside the scope, or XLA is asked for.
    """
    parts = (model._compile_metrics, model._compile_loss)
    missing = not is_built(model) or any(p is not None and not p.built for p in parts)
    if missing or (model.optimizer is not None and not model.optimizer.built):
        # What was made outside the scope, such as an optimizer, gets no variables in it.
        refuse_model(model)
    with _scope(model):
        # A model that is only a container of others, such as a GAN, cannot be called.
        if missing and type(model).call is not keras.Model.call:
            model._symbolic_build(data_batch=_symbolic(model, batch))
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def build_layers(model: Any, batch: Any) -> None:
    """Makes the variables of the layers alone, for a model that may not be compiled.

    Args:
        model: A Keras model.
        batch: One batch, distributed or not.
    """
    if is_built(model):
        return
    local = tree.map_structure(model.distribute_strategy.experimental_local_results, batch)
    x, _, _ = keras.utils.unpack_x_y_sample_weight(
        _symbolic(model, tree.map_structure_up_to(batch, lambda parts: parts[0], local))
    )
    with _scope(model):
        backend.compute_output_spec(model, tree.map_structure(_to_keras, x), training=False)


def is_built(model: Any) -> bool:
    """Returns whether all layers have their variables."""
    return all(layer.built for layer in model._flatten_layers())


def _scope(model: Any) -> contextlib.AbstractContextManager[Any]:
    strategy = model._distribute_strategy
    return strategy.scope() if strategy else contextlib.nullcontext()


def element_spec(epoch_iterator: Any) -> Any:
    """Returns the structure of one replica's batches, as `tf.TypeSpec`s."""
    return of_first_replica(epoch_iterator._distributed_dataset.element_spec)


def of_first_replica(spec: Any) -> Any:
    """Returns what a distributed dataset's `element_spec` says of one replica's batches."""
    return tree.map_structure(lambda each: getattr(each, "_value_specs", (each,))[0], spec)


def to_symbolic(part: Any, rows: int = _BUILD_ROWS) -> Any:
    """Returns the `tf.TensorSpec` of a few rows of one part of a batch, or `None` for no part."""
    if part is None or isinstance(part, tf.OptionalSpec):
        return None
    return tf.TensorSpec([rows, *part.shape[1:]], part.dtype)


def declared_rows(model: Any) -> int | None:
    """Returns the one size of batch that a model is made for, as with a stateful layer, if any."""
    declared = (each.shape[0] for each in getattr(model, "inputs", None) or [] if each.shape)
    return next((int(size) for size in declared if size), None)


def _symbolic(model: Any, batch: Any) -> Any:
    rows = declared_rows(model) or _BUILD_ROWS
    return tree.map_structure(lambda part: to_symbolic(part, rows), batch)


def _to_keras(spec: Any) -> Any:
    return None if spec is None else keras.KerasTensor(spec.shape, spec.dtype.name)


def _column(path: tuple[Any, ...]) -> str:
    names = ("x", "y", "sample_weight")
    first = names[path[0]] if path and isinstance(path[0], int) and path[0] < 3 else "x"
    return first + "".join(f"[{key!r}]" for key in path[1:])
