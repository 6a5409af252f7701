"""Takes a model's own step through TensorFlow's bridge to an XLA program."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import refusals as rules
from keras_tpu_kit.datasets.inspection import named_columns
from keras_tpu_kit.placement import held_by
from keras_tpu_kit.stock_training import TRACE_ERRORS
from keras_tpu_kit.tpu_compiler.program import (
    ProgramFacts,
    fingerprint,
    program_facts,
    read_program,
)
from keras_tpu_kit.tpu_compiler.step import Role
from keras_tpu_kit.tpu_compiler.translation import StepRefusedError, layer_names, refusal


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One argument of the program: what it is called, and what it belongs to."""

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class LoweredStep:
    """A step as the bytes of an XLA program, with its parameters in order."""

    hlo: bytes
    parameters: tuple[Parameter, ...]

    @property
    def facts(self) -> ProgramFacts:
        """What is in the program."""
        return self._read[0]

    @property
    def fingerprint(self) -> str:
        """A hash of what the program computes, whatever its names."""
        return self._read[1]

    @functools.cached_property
    def _read(self) -> tuple[ProgramFacts, str]:
        """Both at once: reading takes seconds, and the program itself is too large to keep."""
        program = read_program(self.hlo)
        return program_facts(program), fingerprint(program)


def lower_step(model: keras.Model, batch: Any, step: str = "train_step") -> LoweredStep:
    """Returns a model's own step as an XLA program of one replica.

    The step is the one that Keras's trainer and the kit's replicated one both run on each
    replica: forward pass, loss, gradients, the optimizer's update, metrics.

    Args:
        model: A compiled and built model, made outside of a strategy of several replicas.
        batch: Its batch as `tf.TensorSpec`s: `x`, `(x, y)` or `(x, y, sample_weight)`, each
            with the rows of one replica.
        step: `"train_step"` or `"test_step"`.

    Raises:
        StepRefusedError: If TensorFlow cannot trace the step, or its bridge has no TPU counterpart
            of an op.
    """
    flat = tf.nest.flatten(batch)
    own_step = getattr(model, step)

    def run(*leaves: Any) -> Any:
        return own_step(tf.nest.pack_sequence_as(batch, leaves))

    function = tf.function(run, jit_compile=True, autograph=False)
    try:
        with warnings.catch_warnings():
            # TensorFlow guesses what will be large; the compiler says it.
            warnings.filterwarnings("ignore", module="tensorflow")
            concrete = function.get_concrete_function(*flat)
    except TRACE_ERRORS as error:
        raise trace_refusal(error, model) from error
    captured = _captured(model, concrete, batch)
    _refuse_text(model, concrete, captured)
    try:
        hlo = function.experimental_get_compiler_ir(*flat)(stage="hlo_serialized")
    except TRACE_ERRORS as error:
        raise refusal("bridge", _text(error), model) from error
    return LoweredStep(hlo, captured)


def trace_refusal(error: BaseException, model: keras.Model) -> StepRefusedError:
    """Returns the refusal for what tracing or building a step raised."""
    if isinstance(error, RuntimeError) and error.__context__ is not None:
        error = error.__context__  # Keras hides all but a ValueError behind one of its own.
    return refusal("trace", _text(error), model, where=_users_line(error))


def _captured(model: keras.Model, concrete: Any, batch: Any) -> tuple[Parameter, ...]:
    """Returns the program's parameters: the batch's columns, then what the step captured."""
    columns = [
        Parameter(name, "batch", tuple(spec.shape), spec.dtype.name)
        for name, spec in named_columns(batch)
    ]
    roles = _roles(model, concrete.graph.variables)
    others = []
    for outer, inner in zip(concrete.captured_inputs, concrete.inputs[len(columns) :], strict=True):
        variable = roles.get(id(outer))
        if variable is not None:
            others.append(variable)
        elif outer.dtype == tf.resource:
            raise _table(model, inner)
        else:
            others.append(
                Parameter("a constant", "constants", tuple(outer.shape), outer.dtype.name)
            )
    return (*columns, *others)


def _refuse_text(model: keras.Model, concrete: Any, parameters: tuple[Parameter, ...]) -> None:
    """Raises where a column is text, of which the bridge names neither column nor reader."""
    for parameter, placeholder in zip(parameters, concrete.inputs, strict=True):
        if placeholder.dtype == tf.string:
            readers = [f"{{{{node {op.name}}}}}" for op in placeholder.consumers()]
            layer = rules.layer_of(" ".join(readers), layer_names(model))
            reader = layer or ("the model's own code" if readers else None)
            finding = rules.text_in_batch(parameter.name, reader)
            original = f"dtype string of {parameter.name}, read by {', '.join(readers)}"
            raise StepRefusedError(finding, original, "bridge")


def _roles(model: keras.Model, touched: Iterable[tf.Variable]) -> dict[int, Parameter]:
    """Returns what each variable belongs to, by the identity of its handle.

    Args:
        model: A compiled model.
        touched: What the step's graph reads or writes, of which the model may not know.
    """
    optimizers = held_by(model, keras.optimizers.Optimizer)
    owners: tuple[tuple[Role, list[Any]], ...] = (
        ("weights", model.variables),
        ("metrics", model.metrics_variables),
        ("optimizer", [variable for each in optimizers for variable in each.variables]),
    )
    unowned = {
        id(variable.handle): Parameter(
            variable.name, "others", tuple(variable.shape), variable.dtype.name
        )
        for variable in touched
    }
    return unowned | {
        id(variable.value.handle): Parameter(
            variable.path, role, tuple(variable.shape), tf.as_dtype(variable.dtype).name
        )
        for role, variables in owners
        for variable in variables
    }


def _table(model: keras.Model, placeholder: Any) -> StepRefusedError:
    """Returns the refusal of a captured resource that is no variable, such as a lookup table."""
    consumers = placeholder.consumers()
    op = consumers[0] if consumers else placeholder.op
    kind = op.type
    return refusal(
        "bridge",
        f"The step uses a resource that is not a variable: {kind} (No registered '{kind}' OpKernel "
        f"for XLA devices compatible with node {{{{node {op.name}}}}})",
        model,
    )


def _text(error: BaseException) -> str:
    # Keras marks parts of a message for terminals.
    return f"{type(error).__name__}: " + re.sub(r"\x1b\[[0-9;]*m", "", str(error))


def _users_line(error: BaseException) -> str | None:
    """Returns the last place in a traceback that is neither Keras's nor TensorFlow's."""
    place = None
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        own = ("/keras/", "/tensorflow/", "/keras_tpu_kit/", "/site-packages/", "<")
        if not any(part in path for part in own):
            place = f"{path}:{trace.tb_lineno} in {trace.tb_frame.f_code.co_name}"
        trace = trace.tb_next
    return place
