"""Counts the operations of a training step, for MFU."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

# The profiler counts a node once, whatever a loop around it or a function behind it repeats.
_HIDES_OPERATIONS = {
    "Case",
    "If",
    "PartitionedCall",
    "StatefulPartitionedCall",
    "StatelessIf",
    "StatelessWhile",
    "While",
}


def step_flops(model: keras.Model, rows: int) -> float | None:
    """Returns the operations of the forward and backward pass over `rows` rows, or `None`.

    Counted by TensorFlow's profiler on the graph of the pass: matrix products, convolutions and
    element-wise operations, multiply and add as two. Losses, metrics and the optimizer's update
    are left out; they are small beside it. `None` where the count would be wrong: the model is
    not built, its inputs are not known or of open length, or it holds a loop, as recurrent
    layers do. Call it outside of a strategy's scope; nothing is run.

    Args:
        model: A built model.
        rows: Rows of the batch; on several replicas those of all.

    Example:

    >>> model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
    >>> forward = 2 * 32 * 784 * 10
    >>> 2 * forward < step_flops(model, rows=32) < 2.1 * forward
    True
    """
    inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
    shapes = [(rows, *tensor.shape[1:]) for tensor in inputs]
    is_known = model.built and inputs and not any(None in shape for shape in shapes)
    if not is_known or tf.distribute.has_strategy():
        return None
    specs = [tf.TensorSpec(s, tensor.dtype) for s, tensor in zip(shapes, inputs, strict=True)]
    concrete = tf.function(_both_passes(model), autograph=False).get_concrete_function(specs)
    needed = _needed(output.op for output in concrete.outputs)
    if any(operation.type in _HIDES_OPERATIONS for operation in needed):
        return None
    return _count(concrete.graph, {operation.name for operation in needed})


def _both_passes(model: keras.Model) -> Any:
    """Returns a function of the model's inputs, a flat list: a loss and all its gradients."""

    # A functional model keeps the names of its inputs here; a sequential one has one input.
    structure = getattr(model, "_inputs_struct", model.inputs[0])

    def run(flat: list[tf.Tensor]) -> list[Any]:
        inputs = keras.tree.pack_sequence_as(structure, flat)
        with tf.GradientTape() as tape:
            outputs = keras.tree.flatten(model(inputs, training=True))
            loss = tf.add_n([tf.reduce_sum(tf.cast(each, "float32")) for each in outputs])
        gradients = tape.gradient(loss, model.trainable_variables)
        return [loss, *(tf.convert_to_tensor(each) for each in gradients if each is not None)]

    return run


def _needed(outputs: Iterable[tf.Operation]) -> set[tf.Operation]:
    """Returns the operations that the outputs of a graph need; the rest never runs.

    Gradients of the model's inputs are such a rest: for a first convolution as costly as its
    forward pass.
    """
    found: set[tf.Operation] = set()
    waiting = list(outputs)
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting.extend(tensor.op for tensor in operation.inputs)
            waiting.extend(operation.control_inputs)
    return found


def _count(graph: tf.Graph, names: set[str]) -> float | None:
    """Returns the floating-point operations of some nodes of a graph, or `None` if none."""
    build = tf.compat.v1.profiler.ProfileOptionBuilder
    options = build(build.float_operation()).with_empty_output().build()
    logger = tf.get_logger()
    level = logger.level
    # It calls a function that TensorFlow itself deprecates.
    logger.setLevel(logging.ERROR)
    try:
        profile = tf.compat.v1.profiler.profile(graph, cmd="scope", options=options)
    finally:
        logger.setLevel(level)
    return float(sum(node.float_ops for node in _walk(profile) if node.name in names)) or None


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _walk(child)
