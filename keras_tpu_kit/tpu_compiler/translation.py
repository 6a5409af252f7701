"""Turns refusals of TensorFlow and of the TPU compiler into findings that name the layer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import keras

from keras_tpu_kit.checks import refusals as rules
from keras_tpu_kit.errors import Finding, PreflightError

Stage = Literal["trace", "bridge", "compiler"]


class StepRefusedError(PreflightError):
    """A TPU cannot run this step; the original message stays readable.

    Args:
        finding: The refusal in the kit's words.
        original: What TensorFlow or the compiler said.
        stage: `"trace"` (TensorFlow could not trace the step), `"bridge"` (an op has no TPU
            counterpart) or `"compiler"` (the TPU compiler refused).
        needed_bytes: Memory that the step would take where it does not fit, or `None`.
        available_bytes: Memory that there is where it does not fit, or `None`.
    """

    def __init__(
        self,
        finding: Finding,
        original: str = "",
        stage: Stage = "compiler",
        needed_bytes: int | None = None,
        available_bytes: int | None = None,
    ) -> None:
        super().__init__(finding)
        self.original = original
        self.stage = stage
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = (self.needed_bytes, self.available_bytes)
        return type(self), (self.finding, self.original, self.stage, *sizes)


def refusal(
    stage: Stage, original: str, model: keras.Model, *, where: str | None = None
) -> StepRefusedError:
    """Returns the refusal for a message, with the layer and the op that it speaks of.

    Args:
        stage: Who refused.
        original: The message.
        model: The model whose layers it may name.
        where: A place in the user's code, such as `"model.py:12 in call"`.
    """
    memory = rules.memory_figures(original)
    if memory is not None:
        needed, available = memory
        finding = rules.step_exceeds_memory(needed, available)
        return StepRefusedError(finding, original, stage, needed, available)
    layer = _called(original, model) or rules.layer_of(original, layer_names(model))
    finding = rules.explain_refusal(stage, original, layer=layer, where=where)
    return StepRefusedError(finding, original, stage)


def _called(message: str, model: keras.Model) -> str | None:
    """Returns the layer in whose call an error arose, where Keras names its class."""
    kind = rules.called_class(message)
    layers = model._flatten_layers(include_self=False)
    names = [layer.name for layer in layers if type(layer).__name__ == kind]
    return f"layer {names[0]!r}" if len(names) == 1 else None


def layer_names(model: keras.Model) -> Iterable[str]:
    """Returns the names of a model's layers, nested ones included."""
    return [layer.name for layer in model._flatten_layers(include_self=False)]
