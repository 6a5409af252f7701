"""The door: from a model, a batch and a TPU type to what the TPU compiler says."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable, MutableMapping
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import compiler as rules
from keras_tpu_kit.checks.refusals import memory_figures
from keras_tpu_kit.errors import PreflightError
from keras_tpu_kit.processes import EXIT_TIMED_OUT, describe_exit, run_limited
from keras_tpu_kit.tpu_compiler import cache
from keras_tpu_kit.tpu_compiler.content import model_content
from keras_tpu_kit.tpu_compiler.installation import CHILD, Compiler, find_compiler
from keras_tpu_kit.tpu_compiler.layouts import parameter_layouts
from keras_tpu_kit.tpu_compiler.lowering import LoweredStep, Parameter, lower_step
from keras_tpu_kit.tpu_compiler.step import Argument, CompiledStep
from keras_tpu_kit.tpu_compiler.translation import refusal
from keras_tpu_kit.tpu_types import TpuType, tpu_type

DEFAULT_TIMEOUT = 900.0
_LOG_LINES = 40


def compile_step(
    model: keras.Model,
    batch: Any,
    tpu: str | TpuType,
    *,
    step: str = "train_step",
    compiler: Compiler | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    with_hlo: bool = False,
    use_cache: bool = True,
    progress: Callable[[str], None] = lambda text: None,
    kept_lowered: MutableMapping[Any, LoweredStep] | None = None,
    prepare: Callable[[], None] = lambda: None,
) -> CompiledStep:
    """Returns what the real TPU compiler says of a model's own step on one replica.

    The compiler runs in a process of its own and needs no TPU. Answers are kept on disk by
    content, so that the same step is compiled once.

    Args:
        model: A compiled model with built layers, made outside of a strategy of several replicas.
        batch: Its batch as `tf.TensorSpec`s with the rows of one replica: `x`, `(x, y)` or
            `(x, y, sample_weight)`.
        tpu: TPU type, such as `"v3-8"`.
        step: `"train_step"` or `"test_step"`.
        compiler: Where the compiler is; by default in this interpreter.
        timeout: Seconds after which the compiler is stopped.
        with_hlo: Whether to keep the optimised program's text in the answer.
        use_cache: Whether an answer from disk will do.
        progress: Told what is being done, one line at a time.
        kept_lowered: Where lowered steps are kept, to compile them for other types without
            tracing again; for as long as the model stays as it is.
        prepare: Called before the step is traced, to make the variables of metrics and optimizer;
            an answer from disk does not need them.

    Raises:
        StepRefusedError: If a TPU cannot run the step, with the layer and op named, or if it does
            not fit into memory.
        PreflightError: If there is no compiler, or it did not answer in time.
        HardwareError: If there is no such TPU type.

    Example:

    ```python
    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    batch = (tf.TensorSpec((128, 784)), tf.TensorSpec((128,), "int32"))
    compile_step(model, batch, "v3-8").peak_bytes
    ```
    """
    target = tpu if isinstance(tpu, TpuType) else tpu_type(tpu)
    compiler = find_compiler() if compiler is None else compiler
    # Slices of one generation run the same program on each replica.
    asked = [target.compiler_topology, target.compiler_config, compiler.versions, with_hlo]
    content = model_content(model, batch, step)
    content_key = None if content is None else cache.key_of("model", content, asked)
    kept = cache.read(content_key) if content_key and use_cache else None
    if kept is not None:
        return dataclasses.replace(CompiledStep.from_dict(kept), tpu=target.name, from_cache=True)
    shapes = tuple((tuple(spec.shape), spec.dtype.name) for spec in tf.nest.flatten(batch))
    own = (id(model), step, shapes)
    lowered = kept_lowered.get(own) if kept_lowered is not None else None
    if lowered is None:
        progress(f"tracing {step}")
        prepare()
        lowered = lower_step(model, batch, step)
        if kept_lowered is not None:
            kept_lowered[own] = lowered
    key = cache.key_of("program", lowered.fingerprint, asked)
    answer = cache.read(key) if use_cache else None
    from_cache = answer is not None
    if answer is None:
        progress(f"compiling {step} for {target.name}")
        answer = _run_compiler(lowered.hlo, target, compiler, timeout, with_hlo)
        cache.write(key, answer)
    if "refusal" in answer:
        raise refusal("compiler", answer["refusal"]["message"], model)
    compiled = CompiledStep(
        tpu=target.name,
        step=step,
        arguments=_arguments(lowered.parameters, answer["entry"]),
        program=lowered.facts,
        from_cache=from_cache,
        **{field.name: answer[field.name] for field in _answered()},
    )
    if content_key is not None:
        cache.write(content_key, compiled.to_dict())
    return compiled


def check_step(
    model: keras.Model,
    batch: Any,
    step: str = "test_step",
    *,
    use_cache: bool = True,
    prepare: Callable[[], None] = lambda: None,
) -> None:
    """Lowers a step without compiling it, which finds ops that have no TPU counterpart.

    Args:
        model: A compiled model with built layers.
        batch: Its batch as `tf.TensorSpec`s with the rows of one replica.
        step: `"train_step"` or `"test_step"`.
        use_cache: Whether to remember on disk what was found to lower.
        prepare: Called before the step is traced, to make the variables of metrics.

    Raises:
        StepRefusedError: If a TPU cannot run the step.
    """
    content = model_content(model, batch, step)
    key = None if content is None else cache.key_of("lowers", content)
    if key is not None and use_cache and cache.read(key) is not None:
        return
    prepare()
    lower_step(model, batch, step)
    if key is not None:
        cache.write(key, {"lowers": True})


def _answered() -> tuple[dataclasses.Field[Any], ...]:
    known_here = ("tpu", "step", "arguments", "program", "from_cache")
    return tuple(f for f in dataclasses.fields(CompiledStep) if f.name not in known_here)


def _arguments(parameters: tuple[Parameter, ...], entry: str) -> tuple[Argument, ...]:
    """Returns each parameter with the bytes that it takes in the layout the compiler chose."""
    return tuple(
        Argument(
            name=parameter.name,
            role=parameter.role,
            shape=layout.shape,
            dtype=parameter.dtype,
            num_bytes=layout.num_bytes,
            padded_bytes=layout.padded_bytes,
        )
        for parameter, layout in zip(parameters, parameter_layouts(entry), strict=True)
    )


def _available_bytes(message: str | None) -> int | None:
    figures = memory_figures(message or "")
    return figures[1] if figures else None


def _run_compiler(
    hlo: bytes, target: TpuType, compiler: Compiler, timeout: float, with_hlo: bool
) -> dict[str, Any]:
    """Returns the compiler's answer, with what it wrote; it may be a refusal.

    Raises:
        PreflightError: If the process was killed, crashed, or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="keras_tpu_kit-") as name:
        folder = pathlib.Path(name)
        request, answer_path = folder / "request.json", folder / "answer.json"
        optimised = folder / "optimised.txt"
        (folder / "program.hlo").write_bytes(hlo)
        request.write_text(
            json.dumps(
                {
                    "hlo_path": str(folder / "program.hlo"),
                    "optimized_path": str(optimised),
                    "accelerator_type": target.name,
                    "topology_name": target.compiler_topology,
                    "chip_config_name": target.compiler_config,
                }
            )
        )
        code, output = run_limited(
            [compiler.python, str(CHILD), str(request), str(answer_path)], timeout=timeout
        )
        log = "\n".join(output.splitlines()[-_LOG_LINES:])
        if code == EXIT_TIMED_OUT:
            raise PreflightError(rules.compiler_timed_out(target.name, timeout))
        if code or not answer_path.exists():
            raise PreflightError(rules.compiler_died(target.name, describe_exit(code), log))
        answer: dict[str, Any] = json.loads(answer_path.read_text())
        if "refusal" in answer:
            if answer["refusal"]["stage"] != "compile":
                raise PreflightError(rules.compiler_broken(compiler.versions, **answer["refusal"]))
            return {**answer, "log": log}
        text = optimised.read_text()
        return {
            **answer,
            "available_bytes": _available_bytes(answer["available_message"]),
            "entry": text.partition("\n")[0],
            "hlo": text if with_hlo else None,
            "log": log,
        }
