"""What a preflight found, to show, save, draw or raise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from keras_tpu_kit import report
from keras_tpu_kit.checks.refusals import gigabytes
from keras_tpu_kit.errors import Finding, KitError, PreflightError
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.preflight.data import Drawn
from keras_tpu_kit.preflight.estimate import ASSUMPTIONS, Estimate
from keras_tpu_kit.preflight.memory import MemorySplit
from keras_tpu_kit.preflight.products import LayerWork
from keras_tpu_kit.preflight.search import LargestBatch
from keras_tpu_kit.tpu_compiler import CompiledStep
from keras_tpu_kit.tpu_types import TpuType


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """What a change of the model would save, found by compiling it.

    Args:
        name: What is changed, such as `"mixed_bfloat16"`.
        needed_bytes: Memory that its step takes, or `None` where a TPU refuses it.
        saved_bytes: Memory that it saves.
        fits: Whether it fits at the asked batch.
    """

    name: str
    needed_bytes: int | None
    saved_bytes: int | None
    fits: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparedType:
    """One row of the comparison of TPU types.

    Args:
        tpu: TPU type.
        fits: Whether the asked batch fits, or `None` where the step does not compile.
        largest_batch: Largest batch on one replica that fits, or `None` where it was not sought.
        samples_per_second: Estimate for the whole slice, or `None`.
        cost_per_epoch: In the currency of the prices given, or `None`.
        note: What is to be known, such as why it does not compile.
    """

    tpu: str
    fits: bool | None
    largest_batch: int | None = None
    samples_per_second: float | None = None
    cost_per_epoch: float | None = None
    note: str = ""


class PreflightReport(report.Report):
    """What a preflight found.

    Args:
        title: What was examined.
        findings: In any order.
        plan: How the data is cut, where it is known.
        tpu: The slice, or `None` for GPUs and the CPU.
        rows: Rows of one step on one replica.
        step: What the compiler says of the training step, or `None` where it was refused.
        memory: Where the memory goes, or `None`.
        estimate: The roofline estimate, or `None`.
        work: The step's matrix products by layer.
        largest: The largest batch that fits, where it was sought.
        variants: What changes would save, where they were tried.
        drawn: What drawn batches showed, or `None` without data.
        compared: The comparison of types, where it was asked for.
        original: What TensorFlow or the compiler said where it refused.
        seconds: Seconds of the examination.
    """

    def __init__(
        self,
        title: str,
        findings: Sequence[Finding] = (),
        plan: BatchPlan | None = None,
        *,
        tpu: TpuType | None = None,
        rows: int | None = None,
        step: CompiledStep | None = None,
        memory: MemorySplit | None = None,
        estimate: Estimate | None = None,
        work: Sequence[LayerWork] = (),
        largest: LargestBatch | None = None,
        variants: Sequence[Variant] = (),
        drawn: Drawn | None = None,
        compared: Sequence[ComparedType] = (),
        original: str = "",
        seconds: float = 0.0,
    ) -> None:
        super().__init__(title, findings, plan)
        self.tpu = tpu
        self.rows = rows
        self.step = step
        self.memory = memory
        self.estimate = estimate
        self.work = tuple(work)
        self.largest = largest
        self.variants = tuple(variants)
        self.drawn = drawn
        self.compared = tuple(compared)
        self.original = original
        self.seconds = seconds

    def raise_for_errors(self, error: type[KitError] = PreflightError) -> None:
        """Raises the first finding of severity "error", if there is one.

        Args:
            error: The class to raise.

        Raises:
            PreflightError: With the finding.
        """
        super().raise_for_errors(error)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if self.step is not None and self.tpu is not None:
            fits = f"The step compiles and fits on {self.tpu.name}"
            return f"{fits}; {len(errors)} error(s) to mend." if errors else f"{fits}."
        if errors:
            return f"Not ready: {errors[0].what}"
        return "No error found."

    def _without_data(self, rows: int) -> str:
        """Returns what was examined where there is no plan to show."""
        told = f"{rows} rows a step on one replica"
        if self.tpu is not None and not self.compared:
            told += f", {rows * self.tpu.num_replicas} on {self.tpu.num_replicas}"
        return f"{told}. Without data, neither plan nor input were checked."

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict of JSON types."""
        return {
            **super().to_dict(),
            "verdict": self.verdict,
            "tpu": self.tpu.name if self.tpu else None,
            "per_replica_batch_size": self.rows,
            "step": self.step.to_dict() if self.step else None,
            "memory": self.memory.to_dict() if self.memory else None,
            "estimate": self.estimate.to_dict() if self.estimate else None,
            "work": [each.to_dict() for each in self.work],
            "largest_batch": dataclasses.asdict(self.largest) if self.largest else None,
            "variants": [dataclasses.asdict(each) for each in self.variants],
            "data": self.drawn.to_dict() if self.drawn else None,
            "compared": [dataclasses.asdict(each) for each in self.compared],
            "original": self.original,
            "seconds": self.seconds,
        }

    def _parts(self) -> list[RenderableType | Finding]:
        parts: list[RenderableType | Finding] = [Text(self.title, style="bold")]
        parts.append(Text(self.verdict, style="red" if self.has_errors else "green"))
        if self.compared:
            parts.append(compared_table(self.compared))
            if self.tpu is not None:
                parts.append(Text(f"In detail, on {self.tpu.name}:", style="bold"))
        if self.plan is not None:
            parts.append(report.plan_table(self.plan))
        elif self.rows is not None:
            parts.append(Text(self._without_data(self.rows)))
        if self.memory is not None:
            parts.append(memory_table(self.memory))
        if self.estimate is not None:
            parts += [estimate_table(self.estimate), Text("\n".join(ASSUMPTIONS), style="dim")]
        if self.work:
            parts.append(work_table(self.work))
        if self.variants:
            parts.append(variants_table(self.variants))
        if self.drawn is not None and self.drawn.rows_per_second is not None:
            delivered = f"{self.drawn.rows_per_second:,.0f} rows a second"
            drawn = f"{self.drawn.batches} batches of {self.drawn.rows} rows were drawn"
            parts.append(Text(f"{drawn}; the dataset delivers {delivered} on this machine."))
        parts += self.findings
        if self.original:
            parts.append(Text(f"The original message:\n{_first_lines(self.original)}", style="dim"))
        return parts


def memory_table(memory: MemorySplit) -> Table:
    """Returns where one replica's memory goes, as a table."""
    whole = memory.available or memory.total

    def row(num_bytes: int, meaning: str) -> tuple[str, str]:
        return gigabytes(num_bytes), f"{num_bytes / whole:.1%} {meaning}".replace("%", " %")

    return report.figures_table(
        "Memory of one replica, as the TPU compiler places it",
        {
            "weights": row(memory.weights, "the model's variables"),
            "optimizer": row(memory.optimizer, "its variables"),
            "batch": row(memory.batch, "the rows of one step"),
            "activations": row(memory.activations, "and gradients, during the step"),
            "rest": row(memory.rest, "metrics, outputs, the program"),
            "total": row(memory.total, "of what a program may use"),
            "available": (gigabytes(memory.available), "") if memory.available else ("?", ""),
            "padding": row(memory.padding, "of it is padding to tiles of weights and batch"),
        },
    )


def estimate_table(estimate: Estimate) -> Table:
    """Returns the roofline estimate as a table."""
    at_least = "at least; its loops repeat" if estimate.has_loops else "as the compiler counts"
    slice_name = f"{estimate.num_replicas} replicas, all-reduce left out"
    return report.figures_table(
        "Estimate (roofline, not measured)",
        {
            "operations": (f"{estimate.flops / 1e9:,.3g} G", f"of one step, {at_least}"),
            "bytes moved": (f"{estimate.bytes_accessed / 1e6:,.4g} MB", "of one step"),
            "intensity": (
                f"{estimate.intensity:,.3g}",
                f"operations a byte; from {estimate.ridge:,.3g} on the chip sets the pace",
            ),
            "step": (f"{estimate.step_seconds * 1e3:,.3g} ms", f"bound by {estimate.bound}"),
            "samples a second": (
                f"{estimate.samples_per_second_per_replica:,.0f}",
                f"on one replica; {estimate.samples_per_second:,.0f} on {slice_name}",
            ),
            "MFU": (f"{estimate.mfu:.1%}".replace("%", " %"), "at the very best"),
            "all-reduce": (gigabytes(estimate.gradient_bytes), "of gradients a step, left out"),
        },
    )


def work_table(work: Sequence[LayerWork], most: int = 8) -> Table:
    """Returns which layers the operations are in and what padding wastes, as a table."""
    rows = [
        (
            each.layer,
            f"{each.share:.1%}".replace("%", " %"),
            f"{each.rows} x {each.depth} x {each.columns}",
            f"{each.waste:.0%}".replace("%", " %"),
            each.dtype,
        )
        for each in work[:most]
    ]
    header = ("layer", "of the operations", "largest product", "padding", "dtype")
    return report.rows_table("Matrix products, those in a loop counted once", header, rows)


def variants_table(variants: Sequence[Variant]) -> Table:
    """Returns what changes would save, as a table."""
    rows = [
        (
            each.name,
            gigabytes(each.needed_bytes) if each.needed_bytes is not None else "refused",
            gigabytes(each.saved_bytes) if each.saved_bytes and each.saved_bytes > 0 else "-",
            "fits" if each.fits else "does not fit",
        )
        for each in variants
    ]
    header = ("with", "needs", "saves", "at this batch")
    return report.rows_table("What a change would save, found by compiling it", header, rows)


def compared_table(compared: Sequence[ComparedType]) -> Table:
    """Returns the comparison of TPU types as a table."""
    rows = [
        (
            each.tpu,
            {True: "yes", False: "no", None: "-"}[each.fits],
            f"{each.largest_batch:,}" if each.largest_batch else "-",
            f"{each.samples_per_second:,.0f}" if each.samples_per_second else "-",
            _price(each.cost_per_epoch) if each.cost_per_epoch is not None else "-",
            each.note,
        )
        for each in compared
    ]
    header = ("type", "fits", "largest batch", "samples/s, est.", "cost/epoch, est.", "")
    return report.rows_table("TPU types (batch per replica; estimates for the slice)", header, rows)


def _price(price: float) -> str:
    return f"{price:,.2f}" if price >= 1 else f"{price:.6f}"


def _first_lines(text: str, most: int = 12) -> str:
    lines = text.splitlines()
    return "\n".join(lines[:most]) + ("\n..." if len(lines) > most else "")
