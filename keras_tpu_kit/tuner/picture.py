"""Draws what a search found: its objective over time, and against throughput."""

from __future__ import annotations

import os
import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK, _GREY, _BLUE, _ORANGE = "#1f2933", "#9aa5b1", "#2a6fdb", "#e4572e"
_RATE = "samples_per_second"
# So many times as far from the median as half of all values, one leaves the picture, or the
# others would lie on a line.
_FAR = 20.0
_COLOURS = {"finished": _BLUE, "pruned": _ORANGE}


def draw_search(
    results: Sequence[dict[str, Any]], objective: Any, path: str | os.PathLike[str]
) -> None:
    """Writes a PNG of the objective over time and against samples per second.

    Args:
        results: What `results.ranked` returns.
        objective: The search's `keras_tuner.Objective`.
        path: The file to write.
    """
    scored = sorted(
        (each for each in results if each["score"] is not None),
        key=lambda each: each["began"] + each["seconds"],
    )
    # A rate against itself would say nothing.
    is_rate = objective.name == _RATE
    figure = Figure(figsize=(6 if is_rate else 11, 4.4), dpi=150, layout="constrained")
    panels = figure.subplots(1, 1 if is_rate else 2, squeeze=False)[0]
    figure.suptitle(_headline(results, scored, objective), x=0.01, ha="left", weight="bold")
    _draw_over_time(panels[0], results, scored, objective)
    if not is_rate:
        _draw_against_rate(panels[1], scored, objective)
    for axes in panels:
        _keep_to_the_bulk(axes, [each["score"] for each in scored])
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK)
        axes.grid(color=_GREY, alpha=0.25, linewidth=0.8)
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def pareto_front(
    points: Sequence[tuple[float, float]], direction: str
) -> list[tuple[float, float]]:
    """Returns the points that no other beats in both rate and objective, by rising rate.

    Args:
        points: Pairs of a rate, of which more is better, and an objective.
        direction: `"min"` or `"max"`: which way the objective is better.

    Example:

    >>> pareto_front([(1.0, 0.9), (2.0, 0.8), (1.5, 0.7)], "max")
    [(1.0, 0.9), (2.0, 0.8)]
    """
    sign = 1.0 if direction == "max" else -1.0
    front: list[tuple[float, float]] = []
    for rate, value in sorted(points, key=lambda point: (-point[0], -sign * point[1])):
        if not front or sign * value > sign * front[-1][1]:
            front.append((rate, value))
    return front[::-1]


def _headline(results: Sequence[Any], scored: Sequence[Any], objective: Any) -> str:
    if not scored:
        return f"None of {len(results)} trials has a value of {objective.name}"
    scores = [each["score"] for each in scored]
    best = max(scores) if objective.direction == "max" else min(scores)
    return f"{objective.name} {best:.5g} is the best of {len(results)} trials"


def _draw_over_time(
    axes: Axes, results: Sequence[Any], scored: Sequence[Any], objective: Any
) -> None:
    """Draws each trial where it ended, and the best so far as a line."""
    start = min((each["began"] for each in results if each["began"]), default=0.0)
    ends = [each["began"] + each["seconds"] - start for each in results if each["began"]]
    unit, seconds = ("minutes", 60) if max(ends, default=0.0) > 120 else ("seconds", 1)
    times = [(each["began"] + each["seconds"] - start) / seconds for each in scored]
    scores = [each["score"] for each in scored]
    better = max if objective.direction == "max" else min
    so_far = [better(scores[: index + 1]) for index in range(len(scores))]
    axes.set(xlabel=f"{unit} since the search began", ylabel=objective.name)
    if not any(each["began"] for each in results):
        axes.text(0.5, 0.5, "no trial has ended", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    axes.step(times, so_far, where="post", color=_INK, linewidth=1.4, label="best so far")
    for outcome, colour in _COLOURS.items():
        ended = [i for i, each in enumerate(scored) if each["outcome"] == outcome]
        if ended:
            axes.scatter(
                [times[i] for i in ended],
                [scores[i] for i in ended],
                color=colour,
                s=26,
                zorder=3,
                label=outcome,
            )
    without = [each for each in results if each["score"] is None and each["began"]]
    for index, each in enumerate(without):
        end = (each["began"] + each["seconds"] - start) / seconds
        label = "without a value" if index == 0 else None
        axes.axvline(end, color=_GREY, linewidth=1, linestyle=":", label=label)
    axes.legend(frameon=False)


def _draw_against_rate(axes: Axes, scored: Sequence[Any], objective: Any) -> None:
    """Draws each trial by its rate, and those that none beats in both as a line."""
    points = [
        (each["metrics"][_RATE], each["score"], each["outcome"])
        for each in scored
        if each["metrics"].get(_RATE) is not None
    ]
    axes.set(xlabel="samples per second, all replicas", ylabel=objective.name)
    if not points:
        axes.text(0.5, 0.5, "no rate was measured", ha="center", transform=axes.transAxes)
        return
    for outcome in dict.fromkeys(point[2] for point in points):
        rates, scores = zip(*(point[:2] for point in points if point[2] == outcome), strict=True)
        colour = _COLOURS.get(outcome, _GREY)
        axes.scatter(rates, scores, color=colour, s=26, zorder=3, label=outcome)
    front = pareto_front([point[:2] for point in points], objective.direction)
    rates, scores = zip(*front, strict=True)
    # As steps: between two trials of the front there is none that reaches both.
    axes.step(
        rates,
        scores,
        where="pre",
        color=_INK,
        linewidth=1.4,
        marker="o",
        markerfacecolor="none",
        markersize=9,
        label="Pareto front",
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False)


def _keep_to_the_bulk(axes: Axes, scores: Sequence[float]) -> None:
    """Ends the axis before values so far out that the others could not be told apart."""
    if len(scores) < 4:
        return
    middle = statistics.median(scores)
    reach = _FAR * statistics.median(abs(score - middle) for score in scores)
    near = [score for score in scores if abs(score - middle) <= reach]
    beyond = len(scores) - len(near)
    if not beyond or not reach:
        return
    margin = 0.05 * (max(near) - min(near))
    axes.set_ylim(min(near) - margin, max(near) + margin)
    told = f"{beyond} trial{'s' if beyond > 1 else ''} beyond this axis"
    axes.text(1.0, 1.01, told, ha="right", color=_GREY, transform=axes.transAxes)
