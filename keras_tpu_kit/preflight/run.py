"""The door: from a factory and data to a report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import keras

from keras_tpu_kit import backend
from keras_tpu_kit.callbacks.examination import plan_problems
from keras_tpu_kit.checks import batches as batch_rules
from keras_tpu_kit.checks import data as data_rules
from keras_tpu_kit.checks import tpu as rules
from keras_tpu_kit.checks.compiler import check_timeout
from keras_tpu_kit.datasets import inspect_data, make_dataset, plan_for_data
from keras_tpu_kit.errors import Finding, KitError, PreflightError, refuse
from keras_tpu_kit.plan import (
    DEFAULT_PER_REPLICA_BATCH,
    BatchPlan,
    plan_batches,
    require_count,
)
from keras_tpu_kit.preflight.batch import labels_guessed, shape_findings, with_rows
from keras_tpu_kit.preflight.comparison import compare
from keras_tpu_kit.preflight.data import Drawn, batch_hooks, draw, remote_findings
from keras_tpu_kit.preflight.examination import Examination, How
from keras_tpu_kit.preflight.report import ComparedType, PreflightReport
from keras_tpu_kit.preflight.subject import Subject
from keras_tpu_kit.preflight.target import Target, target
from keras_tpu_kit.replication.preparation import declared_rows
from keras_tpu_kit.topology import Topology
from keras_tpu_kit.tpu_compiler import StepRefusedError, find_compiler
from keras_tpu_kit.tpu_compiler.compiling import DEFAULT_TIMEOUT
from keras_tpu_kit.tpu_types import COMPARED, tpu_type

Wish = Literal["auto"] | bool


def run_preflight(
    factory: Any,
    data: Any = None,
    tpu: str = "v3-8",
    *,
    global_batch_size: int | None = None,
    per_replica_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    num_samples: int | None = None,
    validation_data: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    remote: bool = False,
    search: Wish = "auto",
    suggest: Wish = "auto",
    prices: Mapping[str, float] | None = None,
    compiler_python: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    use_cache: bool = True,
    progress: Callable[[str], None] = lambda text: None,
    on_row: Callable[[ComparedType], None] = lambda row: None,
    clock: Callable[[], float] = time.perf_counter,
) -> PreflightReport:
    """Returns what would happen if this model were trained on that hardware; nothing is trained.

    The model's own step is compiled for one replica with the real TPU compiler, with no TPU
    present; a few batches of the data are drawn.

    Args:
        factory: A `ModelFactory` or its class, a function that returns a compiled model, the path
            of a `.keras` file, or `"module:name"`.
        data: What `make_dataset` takes, or a dataset of batches as `fit` would get it; by default
            what the factory's `data()` gives. Without any, shapes come from the model.
        tpu: TPU type such as `"v2-8"`, `"v5litepod-1"` or `"v6e-8"`; `"all"` to compare them;
            or `"gpu"`, `"cpu"`, `"gpu-4"`, for which data and plan are checked.
        global_batch_size: Rows of one step over all replicas.
        per_replica_batch_size: Rows of one step on one replica, in place of the global size.
        steps_per_epoch: Steps of an epoch of data without an end.
        num_samples: Training rows, where the data does not tell.
        validation_data: The same as `data` for validation, or `None`.
        callbacks: As `fit` would get them.
        remote: Whether the TPU is on another machine than the program: a named TPU, `grpc://`.
        search: Whether to seek the largest batch that fits; `"auto"` where the batch does not.
        suggest: Whether to compile what bfloat16 and other optimizers save; `"auto"` where the
            batch does not fit.
        prices: Price of an hour by TPU type, for the cost of an epoch with `tpu="all"`.
        compiler_python: An interpreter that holds jax, jaxlib and libtpu, where this one does
            not.
        timeout: Seconds for one compilation.
        use_cache: Whether answers from disk will do.
        progress: Told what is being done, one line at a time.
        on_row: Told each row of the comparison as soon as it is there.
        clock: Gives seconds.

    Raises:
        PreflightError: If there is no compiler, or it does not answer; or if a price or the time
            limit makes no sense.
        PlanError: If a size is no count.
        HardwareError: If there is no such TPU type.

    Example:

    ```python
    ktk.run_preflight(get_compiled_model, (x, y), tpu="v3-8").raise_for_errors()
    ```
    """
    started = clock()
    compares = isinstance(tpu, str) and tpu.lower() == "all"
    where = target(COMPARED[1] if compares else tpu)
    refuse(PreflightError, check_timeout(timeout))
    prices = dict(_priced_row(name, price, compares) for name, price in (prices or {}).items())
    compiler = find_compiler(compiler_python) if where.tpu is not None else None
    subject = Subject(factory, where.topology)
    if data is None:
        own = subject.data()
        data, validation_data = own if own is not None else (None, validation_data)
    sizes = {
        "global_batch_size": global_batch_size,
        "per_replica_batch_size": per_replica_batch_size,
        "steps_per_epoch": steps_per_epoch,
    }
    plan, findings = _plan(where.topology, data, validation_data, num_samples, sizes)
    subject.plan = plan
    findings += [*_environment(where), *_training(data, callbacks, plan, remote)]
    if plan is not None or data is None:  # A plan that was refused says enough.
        known = num_samples if plan is None else plan.num_samples
        without_rows = rules.check_prices(list(prices), known)
        findings += [without_rows] if without_rows else []
    feed, spec, shapes = _feed(data, plan)
    findings += shapes
    report: dict[str, Any] = {"plan": plan, "drawn": None}
    rows = _rows(where.topology, plan, sizes)
    title = f"Preflight of {subject.name} for "
    title += "all TPU types" if compares else str(where.topology)
    is_static = not any(finding.code == "shape-not-static" for finding in shapes)
    examination = None
    if where.tpu is not None and compiler is not None and is_static:
        how = How(compiler=compiler, timeout=timeout, use_cache=use_cache, progress=progress)
        try:
            examination = Examination(subject, spec, where.tpu, how)
            if plan is None and not any(sizes.values()):
                rows = declared_rows(examination.model) or rows
            open_axes = shape_findings(with_rows(examination.spec, rows))
            findings += open_axes
            if compares and not open_axes:
                report["compared"] = compare(
                    examination, COMPARED, rows, plan, prices, search, on_row
                )
            if not open_axes:
                report |= _examined(examination, rows, plan, search, suggest, findings)
        except StepRefusedError as error:
            findings.append(error.finding)
            report["original"] = error.original
            if spec is None and error.stage == "trace" and examination is not None:
                findings.append(labels_guessed(examination.spec[1]))
    if feed is not None:
        progress("drawing batches")
        drawn = draw(
            feed,
            clock=clock,
            num_classes=_num_classes(examination),
            ignored_label=_ignored_label(examination),
        )
        report["drawn"] = drawn
        findings += [*drawn.findings, *_input_rate(drawn, report.get("estimate"))]
    once = [each for place, each in enumerate(findings) if each not in findings[:place]]
    return PreflightReport(
        title, once, tpu=where.tpu, rows=rows, seconds=clock() - started, **report
    )


def _examined(
    examination: Examination,
    rows: int,
    plan: BatchPlan | None,
    search: Wish,
    suggest: Wish,
    findings: list[Finding],
) -> dict[str, Any]:
    """Returns what the compiler says of the step, and of what could be done where it is too big.

    Raises:
        StepRefusedError: If a TPU cannot run the step, whatever its size.
    """
    replicas = examination.tpu.num_replicas
    most_rows = plan.num_samples // replicas if plan else None
    found: dict[str, Any] = {}
    needed = None
    try:
        step = examination.compiled(rows)
    except StepRefusedError as error:
        if error.needed_bytes is None or error.available_bytes is None:
            raise
        findings.append(error.finding)
        found["original"] = error.original
        needed = error.needed_bytes
        fits, available = False, error.available_bytes
    else:
        examination.check_test_step(rows)
        needed, fits, available = step.total_bytes, True, 0
        findings.extend(examination.findings(step))
        found |= {
            "step": step,
            "memory": examination.memory(step),
            "estimate": examination.estimate(step, rows),
            "work": examination.work(step),
        }
    if search is True or (search == "auto" and not fits):
        largest = examination.largest(rows, most_rows=most_rows)
        found["largest"] = largest
        if largest.rows:
            findings.append(rules.largest_batch(largest.rows, largest.refused, replicas))
        else:
            least = min(largest.tries, key=lambda each: each.rows).needed_bytes
            findings.append(rules.nothing_fits(least, available, examination.tpu.name))
    if suggest is True or (suggest == "auto" and not fits):
        found["variants"] = tuple(examination.variants(rows, needed))
    return found


def _plan(
    topology: Topology,
    data: Any,
    validation_data: Any,
    num_samples: int | None,
    sizes: Mapping[str, int | None],
) -> tuple[BatchPlan | None, list[Finding]]:
    """Returns the plan for the data, or what is wrong with it."""
    given = {name: require_count(name, size, 1) for name, size in sizes.items() if size is not None}
    if data is None and num_samples is None:
        size = sizes["global_batch_size"]
        wrong = size and batch_rules.check_global_batch(size, topology.num_replicas)
        return None, [wrong] if wrong else []
    if not given and (data is None or not inspect_data(data).batch_size):
        default = DEFAULT_PER_REPLICA_BATCH[topology.accelerator] * topology.num_replicas
        given = {"target_batch_size": default}
    try:
        if data is None and num_samples is not None:
            counted = plan_batches(topology, num_samples=num_samples, **given)
            return counted, list(counted.findings())
        plan = plan_for_data(
            topology, data, validation_data=validation_data, num_samples=num_samples, **given
        )
    except KitError as error:
        return None, [error.finding]
    return plan, list(plan.findings())


def _feed(data: Any, plan: BatchPlan | None) -> tuple[Any, Any, list[Finding]]:
    """Returns the batches that training would get, their specs, and what is wrong with these."""
    if data is None:
        return None, None, []
    facts = inspect_data(data)
    if facts.kind == "dataset" and facts.is_batched:
        # What is batched already goes to the TPU as it is.
        return data, data.element_spec, list(shape_findings(data.element_spec))
    if plan is None:
        return None, None, []
    dataset = make_dataset(data, plan)
    return dataset, dataset.element_spec, list(shape_findings(dataset.element_spec))


def _rows(topology: Topology, plan: BatchPlan | None, sizes: Mapping[str, int | None]) -> int:
    """Returns the rows of one step on one replica."""
    if plan is not None:
        return plan.per_replica_batch_size
    size = sizes["global_batch_size"]
    if size is not None:
        return max(1, size // topology.num_replicas)
    return sizes["per_replica_batch_size"] or DEFAULT_PER_REPLICA_BATCH[topology.accelerator]


def _environment(where: Target) -> list[Finding]:
    """Returns what this installation means for training there."""
    if where.tpu is None:
        return []
    finding = rules.check_tensorflow_for_tpu(list(backend.installed_wheels().items()))
    return [finding] if finding else []


def _training(
    data: Any,
    callbacks: Sequence[keras.callbacks.Callback],
    plan: BatchPlan | None,
    remote: bool,
) -> list[Finding]:
    """Returns what can be said of data and callbacks without reading or compiling."""
    found = [rules.check_batch_hooks(batch_hooks(callbacks))]
    found += remote_findings(data, callbacks, is_remote=remote)
    if data is not None:
        facts = inspect_data(data)
        if plan is None:
            found.append(data_rules.check_feedable(facts.kind))
        elif facts.kind == "dataset" and facts.is_batched:
            found += [problem.finding for problem in plan_problems(plan, facts)]
    return [finding for finding in found if finding is not None]


def _num_classes(examination: Examination | None) -> int | None:
    """Returns the outputs that integer labels choose from, where that is how the loss reads."""
    model = examination.model if examination else None
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else type(loss).__name__
    outputs = getattr(model, "outputs", None)
    if model is None or "sparse" not in name.lower() or not outputs or len(outputs) != 1:
        return None
    size = outputs[0].shape[-1]
    return int(size) if size is not None else None


def _ignored_label(examination: Examination | None) -> int | None:
    """Returns the label that the loss leaves out, such as that of pixels without a class."""
    loss = getattr(examination.model, "loss", None) if examination else None
    return getattr(loss, "ignore_class", None)


def _priced_row(name: str, price: float, compares: bool) -> tuple[str, float]:
    """Returns a price under the name by which its TPU type, which has several, is compared."""
    wanted = dataclasses.replace(tpu_type(name), name="")
    rows = COMPARED if compares else ()
    alike = (row for row in rows if dataclasses.replace(tpu_type(row), name="") == wanted)
    row = next(alike, None)
    refuse(PreflightError, rules.check_price(name, price, rows, row is not None))
    return row or name, price


def _input_rate(drawn: Drawn, estimate: Any) -> list[Finding]:
    """Returns whether the slice would wait for the data."""
    if drawn.rows_per_second is None or estimate is None:
        return []
    finding = rules.check_input_rate(
        drawn.rows_per_second, estimate.samples_per_second, estimate.step_seconds
    )
    return [finding] if finding else []
