"""What the kit mends on a model's replicas, for the report at the start of training."""

from __future__ import annotations

from typing import Any

import keras

from keras_tpu_kit.checks.model import check_batch_normalization, note_mended
from keras_tpu_kit.errors import Finding
from keras_tpu_kit.replication.replicated import unasked_step
from keras_tpu_kit.stock_training import clips_of, draws_random_numbers


def replication_notes(model: keras.Model) -> tuple[Finding, ...]:
    """Returns what is in force or mended when a replicated model trains.

    Args:
        model: A compiled model, in whose strategy it will train.

    Returns:
        Findings of severity `"info"`, and a warning where BatchNormalization does not see the
        global batch, or where training has begun by a step of the model's own that could not be
        asked whether it averages over rows. Empty on one replica, where nothing is mended.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dropout(0.5)])
    >>> replication_notes(model)
    ()
    """
    replicas = model.distribute_strategy.num_replicas_in_sync
    if replicas == 1:
        return ()
    layers = model._flatten_layers()
    norms = [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]
    unsynchronized = [layer.name for layer in norms if not layer.synchronized]
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    found = [
        note_mended(
            "clipping",
            [f"{name}={value}" for name, value in clips_of(optimizer).items()],
            replicas,
        ),
        note_mended("accumulation", _accumulates(optimizer), replicas),
        note_mended(
            "masks", [layer.name for layer in layers if draws_random_numbers(layer)], replicas
        ),
        note_mended("statistics", [layer.name for layer in norms if layer.synchronized], replicas),
        check_batch_normalization(unsynchronized, replicas),
        unasked_step(model),
    ]
    return tuple(finding for finding in found if finding is not None)


def _accumulates(optimizer: Any) -> list[str]:
    steps = getattr(optimizer, "gradient_accumulation_steps", None)
    return [f"gradient_accumulation_steps={steps}"] if steps else []
