"""The shapes of one replica's batch, from the data or from the model."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import tpu as rules
from keras_tpu_kit.datasets.inspection import named_columns
from keras_tpu_kit.errors import Finding, PreflightError


def with_rows(spec: Any, rows: int) -> Any:
    """Returns the specs of a batch with another number of rows.

    Example:

    >>> with_rows(tf.TensorSpec((None, 3), tf.float32), 8).shape
    TensorShape([8, 3])
    """
    return tf.nest.map_structure(
        lambda leaf: tf.TensorSpec((rows, *leaf.shape[1:]), leaf.dtype), spec
    )


def shape_findings(spec: Any) -> tuple[Finding, ...]:
    """Returns a finding for each column with an axis of open length.

    Args:
        spec: What a dataset yields.
    """
    found = []
    for name, leaf in named_columns(spec):
        if isinstance(leaf, tf.RaggedTensorSpec):
            shape = tuple(leaf.shape)
            shape = (shape[0] or 1, *shape[1:])
        elif leaf.shape.rank is None:
            continue
        else:
            shape = tuple(leaf.shape)
        found.append(rules.check_static_shape(name, shape))
    return tuple(finding for finding in found if finding is not None)


def batch_of_model(model: keras.Model) -> Any:
    """Returns the batch that a model takes, as far as it tells: its inputs and labels.

    Labels of a sparse loss are int32 without the last axis of the output, others are like the
    output.

    Args:
        model: A compiled model.

    Raises:
        PreflightError: If the model does not know its own inputs.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    >>> model.compile("sgd", "sparse_categorical_crossentropy")
    >>> [tuple(spec.shape) for spec in batch_of_model(model)]
    [(None, 2), (None,)]
    """
    inputs = getattr(model, "inputs", None)
    if not inputs or not getattr(model, "outputs", None):
        raise PreflightError(_shapes_unknown())
    structure = getattr(model, "_inputs_struct", model.inputs[0])
    x = keras.tree.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), structure)
    outputs = list(model.outputs)
    losses = tf.nest.flatten(model.loss)
    if len(losses) != len(outputs):
        losses = [losses[0]] * len(outputs)
    labels = [_labels(loss, t) for loss, t in zip(losses, outputs, strict=True)]
    struct = getattr(model, "_outputs_struct", model.outputs[0])
    return (x, keras.tree.pack_sequence_as(struct, labels))


def _labels(loss: Any, output: Any) -> tf.TensorSpec:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    if "sparse" in str(name).lower():
        return tf.TensorSpec(output.shape[:-1], "int32")
    return tf.TensorSpec(output.shape, "float32")


def labels_guessed(labels: Any) -> Finding:
    """Returns the note that a step which cannot be traced was given labels made up.

    Args:
        labels: Their specs.
    """
    told = ", ".join(
        f"{spec.dtype.name} {tuple(spec.shape)}" for spec in keras.tree.flatten(labels)
    )
    return Finding(
        "labels-guessed",
        "info",
        what=f"The labels were taken to be {told}, since there is no data.",
        why="A model says what its inputs are, but not what its loss takes.",
        fix="Pass data (or data() in a ModelFactory): run_preflight(get_model, (x, y)).",
    )


def _shapes_unknown() -> Finding:
    return Finding(
        "shapes-unknown",
        "error",
        what="The model does not say what its inputs look like, and there is no data.",
        why="A TPU's program is compiled for fixed shapes.",
        fix="Pass data, define data() in your ModelFactory, or start the model with keras.Input.",
    )
