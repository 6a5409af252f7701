"""What an epoch should take, by what is known of its data."""

from __future__ import annotations

import keras

from keras_tpu_kit.callbacks.consumption import has_own_train_step
from keras_tpu_kit.checks.data import check_targets
from keras_tpu_kit.checks.steps import INFINITE
from keras_tpu_kit.datasets import DataFacts
from keras_tpu_kit.errors import Finding


def steps_of(facts: DataFacts, steps_per_epoch: int | None) -> int | None:
    """Returns the steps of one epoch, or `None` where nobody knows them before it ends."""
    if steps_per_epoch is not None or facts.num_batches is None or facts.num_batches < 0:
        return steps_per_epoch
    return facts.num_batches


def ends_with_data(facts: DataFacts, steps_per_epoch: int | None) -> bool:
    """Returns whether an epoch is known to end because its data does."""
    is_finite = facts.num_batches is not None and facts.num_batches >= 0
    return is_finite and steps_per_epoch in (None, facts.num_batches)


def rows_of_epoch(facts: DataFacts, steps_per_epoch: int | None) -> int | None:
    """Returns the rows that each epoch will consume, or `None` where they may differ.

    Args:
        facts: What is known of the training data.
        steps_per_epoch: As passed to `fit`.
    """
    if facts.num_batches is None:
        return None
    if steps_per_epoch in (None, facts.num_batches):
        return facts.num_samples
    sizes = {column.shape[0] if column.shape else None for column in facts.columns}
    is_even = facts.last_batch_size == facts.batch_size or sizes == {facts.batch_size}
    if facts.num_batches == INFINITE and facts.batch_size is not None and is_even:
        return steps_per_epoch * facts.batch_size if steps_per_epoch else None
    return None


def missing_targets(model: keras.Model, facts: DataFacts) -> Finding | None:
    """Returns a finding where there is nothing to compare a model's outputs with.

    Args:
        model: A compiled model.
        facts: What is known of the training data.
    """
    # A step or a loss of the model's own knows what it takes.
    own = has_own_train_step(model) or type(model).compute_loss is not keras.Model.compute_loss
    takes_targets = getattr(model, "loss", None) is not None and not own
    return check_targets([column.name for column in facts.columns], takes_targets)
