"""Draws a report: where the memory goes, where the step stands on the roofline, where work is."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import matplotlib.figure
import numpy as np

from keras_tpu_kit.checks.refusals import gigabytes
from keras_tpu_kit.preflight.estimate import Estimate
from keras_tpu_kit.preflight.memory import MemorySplit
from keras_tpu_kit.preflight.products import LayerWork
from keras_tpu_kit.preflight.report import PreflightReport

# Okabe and Ito's colours, which the colour-blind tell apart.
_COLOURS = {
    "weights": "#0072B2",
    "optimizer": "#56B4E9",
    "batch": "#009E73",
    "activations": "#E69F00",
    "rest": "#999999",
}
_PADDING, _LIMIT = "#D55E00", "#D55E00"
# Steps that take less than this part of the memory are drawn without it.
_FAR_FROM_LIMIT = 10


def pictures(report: PreflightReport) -> Iterator[tuple[str, bytes]]:
    """Yields the title and the PNG of each picture that a report has the figures for."""
    if report.memory is not None:
        yield "Memory of one replica", _png(memory_picture(report.memory))
    if report.estimate is not None:
        yield "Roofline", _png(roofline_picture(report.estimate))
    if report.work:
        yield "Matrix products by layer", _png(work_picture(report.work))


def memory_picture(memory: MemorySplit) -> matplotlib.figure.Figure:
    """Returns a stacked bar of one replica's memory, with the limit where it is near."""
    figure = matplotlib.figure.Figure(figsize=(8, 2.1), layout="constrained")
    axes = figure.subplots()
    title = f"Memory of one replica: {gigabytes(memory.total)}"
    shown = memory.total
    if memory.available is not None:
        share = f"{memory.total / memory.available:.1%}".replace("%", " %")
        title += f", {share} of {gigabytes(memory.available)}"
        # A bar that nobody sees tells nothing: far from the limit, only the parts are drawn.
        if memory.total > memory.available / _FAR_FROM_LIMIT:
            shown = max(shown, memory.available)
    unit, size = ("GiB", 2**30) if shown >= 2**30 else ("MiB", 2**20)
    left = 0.0
    for name, colour in _COLOURS.items():
        width = getattr(memory, name) / size
        axes.barh([0], [width], left=left, color=colour, label=name)
        left += width
    if memory.available is not None and shown >= memory.available:
        axes.axvline(memory.available / size, color=_LIMIT, linestyle="--", label="available")
    axes.set_yticks([])
    axes.set_xlabel(unit)
    axes.set_title(title, loc="left")
    figure.legend(ncols=6, loc="outside lower center", frameon=False)
    return figure


def roofline_picture(estimate: Estimate) -> matplotlib.figure.Figure:
    """Returns the chip's roofline with the step on it."""
    figure = matplotlib.figure.Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    low = min(estimate.intensity, estimate.ridge) / 10
    high = max(estimate.intensity, estimate.ridge) * 10
    intensities = np.geomspace(low, high, 100)
    roof = np.minimum(estimate.peak_flops, intensities * estimate.peak_bandwidth)
    axes.loglog(intensities, roof / 1e12, color=_COLOURS["weights"], label="the chip's limit")
    reached = estimate.flops / estimate.step_seconds / 1e12
    axes.plot([estimate.intensity], [reached], "o", color=_PADDING, label="this step, at best")
    axes.axvline(estimate.ridge, color=_COLOURS["rest"], linestyle=":", label="ridge")
    axes.set_xlabel("operations per byte moved")
    axes.set_ylabel("TFLOP/s of one replica")
    axes.set_title("Roofline (an estimate)", loc="left")
    axes.legend(frameon=False)
    return figure


def work_picture(work: Sequence[LayerWork], most: int = 12) -> matplotlib.figure.Figure:
    """Returns a bar per layer: operations, and what padding adds to them."""
    shown = list(work[:most])[::-1]
    figure = matplotlib.figure.Figure(figsize=(8, 1.2 + 0.3 * len(shown)), layout="constrained")
    axes = figure.subplots()
    done = np.array([each.flops for each in shown]) / 1e9
    padding = np.array([each.flops / (1 - each.waste) - each.flops for each in shown]) / 1e9
    names = [each.layer for each in shown]
    axes.barh(names, done, color=_COLOURS["weights"], label="of data")
    axes.barh(names, padding, left=done, color=_PADDING, label="of padding")
    axes.set_xlabel("billion operations a step, at least")
    axes.set_title("Matrix products by layer", loc="left")
    axes.legend(frameon=False)
    return figure


def _png(figure: matplotlib.figure.Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
