"""Draws what a search found: its objective over time, and against throughput."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_INK, _GREY, _BLUE, _ORANGE = "#1f2933", "#9aa5b1", "#2a6fdb", "#e4572e"
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
    figure = Figure(figsize=(11, 4.4), dpi=150, layout="constrained")
    over_time, against_rate = figure.subplots(1, 2)
    figure.suptitle(_headline(results, scored, objective), x=0.01, ha="left", weight="bold")
    _draw_over_time(over_time, results, scored, objective)
    _draw_against_rate(against_rate, scored, objective)
    for axes in (over_time, against_rate):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=_INK)
        axes.grid(color=_GREY, alpha=0.25, linewidth=0.8)
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
    minutes = [(each["began"] + each["seconds"] - start) / 60 for each in scored]
    scores = [each["score"] for each in scored]
    better = max if objective.direction == "max" else min
    so_far = [better(scores[: index + 1]) for index in range(len(scores))]
    axes.step(minutes, so_far, where="post", color=_INK, linewidth=1.4, label="best so far")
    for outcome, colour in _COLOURS.items():
        ended = [i for i, each in enumerate(scored) if each["outcome"] == outcome]
        if ended:
            axes.scatter(
                [minutes[i] for i in ended],
                [scores[i] for i in ended],
                color=colour,
                s=26,
                zorder=3,
                label=outcome,
            )
    without = [each for each in results if each["score"] is None and each["began"]]
    for index, each in enumerate(without):
        minute = (each["began"] + each["seconds"] - start) / 60
        label = "without a value" if index == 0 else None
        axes.axvline(minute, color=_GREY, linewidth=1, linestyle=":", label=label)
    axes.set(xlabel="minutes since the search began", ylabel=objective.name)
    if results:
        axes.legend(frameon=False)


def _draw_against_rate(axes: Axes, scored: Sequence[Any], objective: Any) -> None:
    """Draws each trial by its rate, and those that none beats in both as a line."""
    points = [
        (each["metrics"]["samples_per_second"], each["score"], each["outcome"])
        for each in scored
        if each["metrics"].get("samples_per_second") is not None
    ]
    axes.set(xlabel="samples per second, all replicas", ylabel=objective.name)
    if not points:
        axes.text(0.5, 0.5, "no rate was measured", ha="center", transform=axes.transAxes)
        return
    for rate, score, outcome in points:
        axes.scatter(rate, score, color=_COLOURS.get(outcome, _GREY), s=26, zorder=3)
    front = pareto_front([point[:2] for point in points], objective.direction)
    axes.plot(*zip(*front, strict=True), color=_INK, linewidth=1.4, label="Pareto front")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False)
