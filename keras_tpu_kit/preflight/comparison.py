"""The same model on every TPU type, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.preflight.examination import Examination
from keras_tpu_kit.preflight.report import ComparedType
from keras_tpu_kit.preflight.search import LargestBatch
from keras_tpu_kit.tpu_compiler import StepRefusedError
from keras_tpu_kit.tpu_types import tpu_type

_SECONDS_PER_HOUR = 3600


def compare(
    examination: Examination,
    names: Sequence[str],
    rows: int,
    plan: BatchPlan | None,
    prices: Mapping[str, float],
    search: Literal["auto"] | bool,
    on_row: Callable[[ComparedType], None],
) -> tuple[ComparedType, ...]:
    """Returns one row for each TPU type.

    Args:
        examination: Of the model on any type.
        names: TPU types.
        rows: Rows of one step on one replica.
        plan: How the data is cut, for the rows of an epoch; or `None`.
        prices: Price of an hour by TPU type.
        search: Whether to seek the largest batch on each type; `"auto"` where `rows` do not
            fit.
        on_row: Told each row as soon as it is there.
    """
    compared = []
    for name in names:
        row = _row(examination.on(tpu_type(name)), rows, plan, prices.get(name), search)
        compared.append(row)
        on_row(row)
    return tuple(compared)


def _row(
    examination: Examination,
    rows: int,
    plan: BatchPlan | None,
    price: float | None,
    search: Literal["auto"] | bool,
) -> ComparedType:
    name = examination.tpu.name
    try:
        one, _ = examination.tried(rows)
        largest: LargestBatch | None = None
        if search is True or (search == "auto" and not one.fits):
            most = plan.num_samples // examination.tpu.num_replicas if plan else None
            largest = examination.largest(rows, most_rows=most)
        fitting = rows if one.fits else largest.rows if largest else 0
        estimate = None
        if fitting:
            estimate = examination.estimate(examination.compiled(fitting), fitting)
    except StepRefusedError as error:
        return ComparedType(tpu=name, fits=None, note=error.finding.what)
    rate = estimate.samples_per_second if estimate else None
    cost = None
    if price is not None and rate and plan is not None:
        cost = price * plan.num_samples / rate / _SECONDS_PER_HOUR
    return ComparedType(
        tpu=name,
        fits=one.fits,
        largest_batch=largest.rows if largest else None,
        samples_per_second=rate,
        cost_per_epoch=cost,
        note="" if one.fits or not fitting else f"with {fitting} rows a replica",
    )
