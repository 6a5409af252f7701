"""What stock Keras would get wrong with a model on several replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import model as model_checks
from keras_tpu_kit.errors import Finding

# What tracing a user's code may raise, in that code, in Keras or in TensorFlow.
TRACE_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    RuntimeError,
    tf.errors.OpError,
)
_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")


def stock_training_findings(model: keras.Model) -> tuple[Finding, ...]:
    """Returns what would make several replicas differ from one device in Keras's own `fit`.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        model: A compiled model.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> stock_training_findings(model)
    ()
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    layers = list(walk_layers(model))
    norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
    found = (
        *(
            model_checks.check_loss_rank(name, rank, replicas)
            for name, rank in loss_ranks(model)
            if rank is not None
        ),
        model_checks.check_jit_compile(getattr(model, "jit_compile", None), replicas),
        model_checks.check_gradient_accumulation(
            getattr(optimizer, "gradient_accumulation_steps", None), replicas
        ),
        model_checks.check_clipping(list(clips_of(optimizer)), replicas),
        model_checks.check_batch_normalization(
            [layer.name for layer in norms if not layer.synchronized], replicas
        ),
        model_checks.check_dropout(
            [layer.name for layer in layers if draws_random_numbers(layer)], replicas
        ),
    )
    return tuple(finding for finding in found if finding is not None)


def walk_layers(layer: keras.Layer) -> Iterator[keras.Layer]:
    """Yields all layers inside a layer or model, however deep, each once."""
    return (part for part in layer._flatten_layers(include_self=False) if part is not layer)


def clips_of(optimizer: Any) -> dict[str, float]:
    """Returns how an optimizer clips gradients, by argument.

    Example:

    >>> clips_of(keras.optimizers.SGD(clipnorm=1.0))
    {'clipnorm': 1.0}
    """
    return {name: value for name in _CLIPS if (value := getattr(optimizer, name, None)) is not None}


def draws_random_numbers(layer: keras.Layer) -> bool:
    """Returns whether a layer may draw random numbers while training.

    Recurrent layers hold a seed even where they drop nothing.

    Example:

    >>> layers = (keras.layers.Dropout(0.5), keras.layers.GRUCell(2),
    ...           keras.layers.GRUCell(2, dropout=0.5))
    >>> [draws_random_numbers(layer) for layer in layers]
    [True, False, True]
    """
    rates = [
        rate
        for name in ("dropout", "recurrent_dropout")
        if isinstance(rate := getattr(layer, name, None), int | float)
    ]
    has_seed = any(isinstance(each, keras.random.SeedGenerator) for each in vars(layer).values())
    return has_seed and (not rates or any(rates))


def loss_ranks(model: keras.Model) -> list[tuple[str, int | None]]:
    """Returns each custom loss's name and the rank of what it returns for a batch.

    A rank is `None` where it cannot be told without data: then the model has no fixed output,
    or the loss does not take labels of any usual shape.

    Example:

    >>> def scalar(y, p):
    ...     return keras.ops.mean(keras.ops.square(y - p))
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", loss=scalar)
    >>> loss_ranks(model)
    [('scalar', 0)]
    """
    losses = [loss for loss in tf.nest.flatten(getattr(model, "loss", None)) if loss is not None]
    outputs = tf.nest.flatten(getattr(model, "outputs", None) or [])
    if len(outputs) != len(losses):
        outputs = [outputs[0] if len(outputs) == 1 else None] * len(losses)
    return [
        (_loss_name(loss), _rank(loss, output))
        for loss, output in zip(losses, outputs, strict=True)
        if not isinstance(loss, str)
    ]


def _loss_name(loss: Any) -> str:
    return str(getattr(loss, "__name__", None) or getattr(loss, "name", type(loss).__name__))


def _rank(loss: Any, output: Any) -> int | None:
    """Returns the rank of a loss's value for a batch, tried with the usual shapes of labels."""
    if output is None:
        return None
    call = loss.call if isinstance(loss, keras.losses.Loss) else loss
    shape, dtype = list(output.shape), output.dtype
    prediction = tf.TensorSpec(shape, dtype)
    for labels in (
        tf.TensorSpec(shape, dtype),
        tf.TensorSpec(shape[:-1], "int32"),
        tf.TensorSpec([*shape[:-1], 1], "int32"),
    ):
        try:
            result = tf.function(call).get_concrete_function(labels, prediction)
        except TRACE_ERRORS:  # Labels of a shape or dtype that the loss is not made for.
            continue
        value = result.structured_outputs
        return None if value is None else value.shape.rank
    return None
