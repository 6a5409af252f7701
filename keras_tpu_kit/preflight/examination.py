"""One examination: makes the model, compiles its step, reads the answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import model as model_rules
from keras_tpu_kit.checks import tpu as rules
from keras_tpu_kit.checks.refusals import layer_of
from keras_tpu_kit.errors import Finding
from keras_tpu_kit.preflight.batch import batch_of_model, with_rows
from keras_tpu_kit.preflight.estimate import Estimate, roofline
from keras_tpu_kit.preflight.memory import MemorySplit, memory_split
from keras_tpu_kit.preflight.products import LayerWork, float32_share, work_by_layer
from keras_tpu_kit.preflight.report import Variant
from keras_tpu_kit.preflight.search import LargestBatch, Try, find_largest_batch
from keras_tpu_kit.preflight.subject import Subject
from keras_tpu_kit.tpu_compiler import (
    CompiledStep,
    Compiler,
    StepRefusedError,
    check_step,
    compile_step,
)
from keras_tpu_kit.tpu_compiler.lowering import LoweredStep
from keras_tpu_kit.tpu_types import TpuType

# Optimizers that keep less per weight than Adam's two slots.
_LEANER_OPTIMIZERS = ("adafactor", "sgd")
_MATRIX_ADVICE = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class How:
    """How steps are compiled in this examination.

    Args:
        compiler: The interpreter with the compiler.
        timeout: Seconds for one compilation.
        use_cache: Whether answers from disk will do.
        progress: Told what is being done.
    """

    compiler: Compiler
    timeout: float
    use_cache: bool
    progress: Callable[[str], None]


class Examination:
    """Asks the compiler about one model on one TPU type.

    Args:
        subject: Makes the model.
        spec: The batch as the data gives it, with any number of rows; `None` asks the model.
        tpu: The slice.
        how: How steps are compiled.
    """

    def __init__(self, subject: Subject, spec: Any, tpu: TpuType, how: How) -> None:
        self.subject = subject
        self.tpu = tpu
        self.how = how
        self.model = subject.model()
        self._lowered: dict[Any, LoweredStep] = {}
        self.spec = batch_of_model(self.model) if spec is None else spec
        subject.build_layers(self.model, self.spec)

    def on(self, tpu: TpuType) -> Examination:
        """Returns the same examination on another TPU type."""
        other = object.__new__(Examination)
        other.__dict__.update(self.__dict__, tpu=tpu)
        return other

    def compiled(self, rows: int, model: keras.Model | None = None) -> CompiledStep:
        """Returns what the compiler says of a batch of `rows` on one replica.

        Raises:
            StepRefusedError: If a TPU cannot run the step, or it does not fit.
        """
        # A variant's model may be gone when another one gets its id.
        kept = self._lowered if model is None else None
        model = model or self.model
        with tf.device("/cpu:0"):
            return compile_step(
                model,
                with_rows(self.spec, rows),
                self.tpu,
                compiler=self.how.compiler,
                timeout=self.how.timeout,
                use_cache=self.how.use_cache,
                progress=lambda text: self.how.progress(f"{text}, batch {rows}"),
                kept_lowered=kept,
                prepare=lambda: self._build(model),
            )

    def tried(self, rows: int, model: keras.Model | None = None) -> tuple[Try, int]:
        """Returns whether a batch fits, and the memory there is.

        Raises:
            StepRefusedError: If a TPU cannot run the step, whatever the batch.
        """
        try:
            step = self.compiled(rows, model)
        except StepRefusedError as error:
            if error.needed_bytes is None or error.available_bytes is None:
                raise
            return Try(rows, error.needed_bytes, False), error.available_bytes
        return Try(rows, step.total_bytes, True), step.available_bytes or step.total_bytes

    def largest(
        self, rows: int, *, most_rows: int | None = None, model: keras.Model | None = None
    ) -> LargestBatch:
        """Returns the largest batch that fits, begun at `rows`."""
        first, available = self.tried(rows, model)
        return find_largest_batch(
            lambda size: self.tried(size, model)[0], available, first, most_rows=most_rows
        )

    def check_test_step(self, rows: int) -> None:
        """Lowers the model's own `test_step` as well, which may hold ops of its own.

        Raises:
            StepRefusedError: If a TPU cannot run it.
        """
        self.how.progress("checking test_step")
        with tf.device("/cpu:0"):
            check_step(
                self.model,
                with_rows(self.spec, rows),
                use_cache=self.how.use_cache,
                prepare=lambda: self._build(self.model),
            )

    def memory(self, step: CompiledStep) -> MemorySplit:
        """Returns where the memory of a step goes."""
        return memory_split(step)

    def estimate(self, step: CompiledStep, rows: int) -> Estimate | None:
        """Returns the roofline estimate of a step."""
        gradients = sum(
            variable.shape.num_elements() * tf.as_dtype(variable.dtype).size
            for variable in (each.value for each in self.model.trainable_variables)
        )
        return roofline(step, self.tpu, rows, gradients)

    def work(self, step: CompiledStep) -> tuple[LayerWork, ...]:
        """Returns the step's matrix products by layer."""
        return work_by_layer(step.program.products, self._layer_names)

    def findings(self, step: CompiledStep) -> Iterator[Finding]:
        """Yields what is worth knowing about a step that compiles."""
        program = step.program
        found = [
            rules.check_float64(self._places(program.float64_layers)),
            rules.check_dynamic_shapes(self._places(program.dynamic_layers)),
            rules.check_matrix_dtype(float32_share(program.products)),
            model_rules.check_jit_compile(self.model.jit_compile, self.tpu.num_replicas),
            model_rules.check_run_eagerly(self.model.run_eagerly),
        ]
        advice = (
            rules.check_padding(each.layer, each.rows, each.depth, each.columns, each.share)
            for each in self.work(step)
        )
        found += [finding for finding in advice if finding is not None][:_MATRIX_ADVICE]
        yield from (finding for finding in found if finding is not None)

    def variants(self, rows: int, needed_bytes: int) -> Iterator[Variant]:
        """Yields what bfloat16 and leaner optimizers would save on `needed_bytes`, by compiling."""
        computes_in = {layer.compute_dtype for layer in self.model._flatten_layers()}
        if "bfloat16" not in computes_in:
            yield self._variant("mixed_bfloat16", rows, needed_bytes, precision="mixed_bfloat16")
        own = type(self.model.optimizer).__name__.lower()
        for name in _LEANER_OPTIMIZERS:
            if name != own:
                yield self._variant(f"optimizer={name!r}", rows, needed_bytes, optimizer=name)

    def _variant(self, name: str, rows: int, needed_bytes: int, **change: str) -> Variant:
        self.how.progress(f"trying {name}")
        model = self.subject.model(**change)
        self.subject.build_layers(model, self.spec)
        try:
            one, _ = self.tried(rows, model)
        except StepRefusedError:
            return Variant(name=name, needed_bytes=None, saved_bytes=None, fits=False)
        return Variant(
            name=name,
            needed_bytes=one.needed_bytes,
            saved_bytes=needed_bytes - one.needed_bytes,
            fits=one.fits,
        )

    def _build(self, model: keras.Model) -> None:
        self.subject.build(model, self.spec)

    @property
    def _layer_names(self) -> list[str]:
        return [layer.name for layer in self.model._flatten_layers(include_self=False)]

    def _places(self, op_names: tuple[str, ...]) -> list[str]:
        """Returns what users would call the places of some ops, each once."""
        names = self._layer_names
        found = {layer_of(f"{{{{node {name}}}}}", names) for name in op_names}
        known = sorted(place for place in found if place is not None)
        return known or (["the step"] if op_names else [])
