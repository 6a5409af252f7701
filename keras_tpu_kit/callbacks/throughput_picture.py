"""Draws what a training achieved."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from keras_tpu_kit.throughput import Throughput, total

_INK, _BLUE, _ORANGE, _GREY = "#1f2933", "#2a6fdb", "#e4572e", "#9aa5b1"


def draw_throughput(epochs: Sequence[Throughput], path: str | os.PathLike[str]) -> None:
    """Writes a PNG of samples per second over the training and of the executions' times.

    Args:
        epochs: The figures of each epoch, in order.
        path: The file to write.
    """
    figure = Figure(figsize=(10, 4.4), dpi=150, layout="constrained")
    rates, times = figure.subplots(1, 2, width_ratios=(2.2, 1))
    measured = [epoch for epoch in epochs if epoch.execution_seconds]
    if measured:
        run = total(measured)
        _draw_rates(rates, measured, run)
        _draw_times(times, run)
        figure.suptitle(_headline(run), x=0.01, ha="left", weight="bold", color=_INK)
        _legend(rates)
        _legend(times)
    else:
        figure.suptitle("No execution but the first was measured", x=0.01, ha="left")
    for axes in (rates, times):
        axes.spines[["top"]].set_visible(False)
        axes.tick_params(colors=_INK)
        axes.grid(axis="y", color=_GREY, alpha=0.25, linewidth=0.8)
    times.spines[["right"]].set_visible(False)
    figure.savefig(path, format="png")


def _headline(run: Throughput) -> str:
    replicas = "1 replica" if run.num_replicas == 1 else f"{run.num_replicas} replicas"
    rate = "an unknown number of" if run.rows is None else f"{run.samples_per_second:,.0f}"
    first = run.first_execution_seconds
    note = "" if first is None else f", after a first execution of {first:,.3g} s (compilation)"
    return f"{rate} samples per second on {replicas}{note}"


def _legend(axes: Axes) -> None:
    """Puts the legend above the axes, where it hides nothing."""
    axes.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=2, fontsize="small"
    )


def _draw_rates(axes: Axes, epochs: Sequence[Throughput], run: Throughput) -> None:
    """Draws each execution's rate as a dot and each epoch's as a line."""
    start = 0
    for epoch in epochs:
        seconds = np.asarray(epoch.execution_seconds)
        numbers = np.arange(start, start + len(seconds)) + 1
        # Executions of an epoch hold the same number of rows, but perhaps for the last.
        rows = (epoch.rows if epoch.rows is not None else np.nan) / len(seconds)
        each = rows / np.maximum(seconds, 1e-9)
        axes.plot(numbers, each, ".", color=_BLUE, alpha=0.45, markersize=5)
        ends = (start + 0.5, start + len(seconds) + 0.5)
        axes.hlines(epoch.samples_per_second, *ends, color=_ORANGE, linewidth=2.5)
        if start:
            axes.axvline(start + 0.5, color=_GREY, linewidth=0.8, linestyle=":")
        start += len(seconds)
    _limit_to_bulk(axes, epochs)
    axes.plot([], [], ".", color=_BLUE, label="one execution")
    axes.plot([], [], "-", color=_ORANGE, linewidth=2.5, label="mean of an epoch")
    axes.set(xlabel="execution", ylabel="samples per second, all replicas", xlim=(0.5, start + 0.5))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    if run.num_replicas == 1:
        axes.spines[["right"]].set_visible(False)
        return
    replicas = run.num_replicas
    per_replica = axes.secondary_yaxis("right", functions=_per_replica(replicas))
    per_replica.set_ylabel("per replica", color=_INK)
    per_replica.yaxis.set_major_formatter("{x:,.0f}")


def _per_replica(num_replicas: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Returns how a rate of all replicas becomes that of one, and back."""
    return (lambda rate: rate / num_replicas), (lambda rate: rate * num_replicas)


def _limit_to_bulk(axes: Axes, epochs: Sequence[Throughput]) -> None:
    """Starts the axis at zero, and lets no freak execution squeeze the others."""
    rates = np.concatenate(
        [
            (epoch.rows or 0) / len(epoch.execution_seconds) / np.asarray(epoch.execution_seconds)
            for epoch in epochs
            if min(epoch.execution_seconds) > 0
        ]
        or [np.ones(1)]
    )
    axes.set_ylim(0, max(float(np.percentile(rates, 98)) * 1.2, 1e-9))


def _draw_times(axes: Axes, run: Throughput) -> None:
    """Draws how long executions took, with the median and the 95th percentile."""
    milliseconds = np.asarray(run.execution_seconds) * 1e3
    most = float(np.percentile(milliseconds, 99)) * 1.1 + 1e-9
    axes.hist(np.minimum(milliseconds, most), bins=40, range=(0, most), color=_BLUE, alpha=0.6)
    for percent, style in ((50, "-"), (95, "--")):
        value = run.execution_percentile(percent) * 1e3
        label = f"{'median' if percent == 50 else 'p95'} {value:,.3g} ms"
        axes.axvline(value, color=_ORANGE, linestyle=style, linewidth=1.6, label=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="milliseconds per execution", ylabel="executions")
