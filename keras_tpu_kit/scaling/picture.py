"""Draws speed-up over the number of replicas."""

from __future__ import annotations

import os

from matplotlib.figure import Figure

from keras_tpu_kit.scaling.figures import Scaling
from keras_tpu_kit.throughput import PUBLISHED_SPEEDUP

_COLOURS = {"weak": "#2a6fdb", "strong": "#e4572e"}


def draw_scaling(scaling: Scaling, path: str | os.PathLike[str], unit: str = "replicas") -> None:
    """Writes a PNG of the speed-up, beside the perfect and the published one.

    Args:
        scaling: What was measured.
        path: The file to write.
        unit: What the counts count.
    """
    figure = Figure(figsize=(7, 4.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    counts = scaling.counts
    axes.plot(counts, counts, color="#9aa5b1", linestyle=":", label="perfect")
    published = {count: PUBLISHED_SPEEDUP[count] for count in counts if count in PUBLISHED_SPEEDUP}
    axes.plot(
        list(published),
        list(published.values()),
        "D",
        color="#52606d",
        mfc="none",
        label="published",
    )
    for mode in scaling.modes:
        speedups = [scaling.speedup(count, mode) for count in counts]
        axes.plot(counts, speedups, "o-", color=_COLOURS[mode], label=f"{mode} scaling")
        for count, speedup in zip(counts[1:], speedups[1:], strict=True):
            axes.annotate(
                f"{speedup:.2f}x",
                (count, speedup),
                textcoords="offset points",
                xytext=(0, 7 if mode == "weak" else -14),
                ha="center",
                color=_COLOURS[mode],
            )
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, labels=[str(count) for count in counts])
    axes.set_xlabel(unit)
    axes.set_ylabel("samples per second, relative to one")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False)
    axes.set_title(f"Speed-up over {unit}", loc="left", weight="bold")
    figure.savefig(path, format="png")
