"""Where one replica's memory goes, as a value."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_tpu_kit.tpu_compiler import CompiledStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemorySplit:
    """One replica's memory in bytes, tile padding included.

    Args:
        weights: Variables of the model.
        optimizer: Variables of the optimizer.
        batch: The rows of one step.
        activations: What lives during the step only: activations, gradients, scratch.
        rest: Metrics, constants, new outputs and the program.
        padding: The part of weights, optimizer and batch that is padding.
        available: What the compiler lets a program use, or `None` where it does not say.
    """

    weights: int
    optimizer: int
    batch: int
    activations: int
    rest: int
    padding: int
    available: int | None

    @property
    def total(self) -> int:
        """Bytes that the step takes."""
        return self.weights + self.optimizer + self.batch + self.activations + self.rest

    def to_dict(self) -> dict[str, Any]:
        """Returns the parts and their total as a dict of JSON types."""
        return {**dataclasses.asdict(self), "total": self.total}


def memory_split(step: CompiledStep) -> MemorySplit:
    """Returns where the memory of a compiled step goes."""
    weights, optimizer = step.role_bytes("weights"), step.role_bytes("optimizer")
    batch = step.role_bytes("batch")
    return MemorySplit(
        weights=weights,
        optimizer=optimizer,
        batch=batch,
        activations=step.temporary_bytes,
        rest=step.total_bytes - weights - optimizer - batch - step.temporary_bytes,
        padding=sum(each.padded_bytes - each.num_bytes for each in step.arguments),
        available=step.available_bytes,
    )
