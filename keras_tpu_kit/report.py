"""Findings and tables as text, JSON and HTML."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from keras_tpu_kit.errors import Finding, KitError, Severity
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.throughput import Throughput, describe_input_wait

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}
# Rich takes a file for a terminal of 80 columns, and breaks numbers to fit.
_FILE_COLUMNS = 120
_ORDER: tuple[Severity, ...] = ("error", "warning", "info")


class Report:
    """A list of findings with the plan they speak of, to show, save or raise.

    Args:
        title: What was examined.
        findings: In any order; errors are shown first.
        plan: The plan that was examined, or `None`.

    Example:

    >>> report = Report("demo", [Finding("slow", "info", "It is slow.", "It waits.", "Wait.")])
    >>> report.has_errors, report.to_dict()["findings"][0]["code"]
    (False, 'slow')
    """

    def __init__(
        self, title: str, findings: Iterable[Finding] = (), plan: BatchPlan | None = None
    ) -> None:
        self.title = title
        self.plan = plan
        self.findings = tuple(sorted(findings, key=lambda f: _ORDER.index(f.severity)))

    @property
    def has_errors(self) -> bool:
        """Whether training would fail or be wrong."""
        return any(finding.severity == "error" for finding in self.findings)

    def raise_for_errors(self, error: type[KitError] = KitError) -> None:
        """Raises the first finding of severity "error", if there is one.

        Args:
            error: The class to raise.

        Raises:
            KitError: Of the class `error`, with the finding.
        """
        for finding in self.findings:
            if finding.severity == "error":
                raise error(finding)

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict of JSON types."""
        return {
            "title": self.title,
            "plan": self.plan.to_dict() if self.plan else None,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def to_json(self) -> str:
        """Returns the report as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def show(self, console: Console | None = None) -> None:
        """Prints the report, to standard output by default."""
        show(*self._parts(), console=console)

    def __str__(self) -> str:
        return render(*self._parts())

    def _parts(self) -> list[RenderableType | Finding]:
        plan = [plan_table(self.plan)] if self.plan else []
        return [Text(self.title, style="bold"), *plan, *self.findings]


def show(*parts: RenderableType | Finding, console: Console | None = None) -> None:
    """Prints tables and findings, to standard output by default.

    Args:
        *parts: What rich can draw, and findings.
        console: Where to print.
    """
    console = console or _console()
    for part in parts:
        console.print(finding_text(part) if isinstance(part, Finding) else part)


def _console() -> Console:
    """Returns standard output; in a file or a pipe with room for the widest table."""
    console = Console(highlight=False)
    if not console.is_terminal and not console.is_jupyter and "COLUMNS" not in os.environ:
        console.width = _FILE_COLUMNS
    return console


def render(*parts: RenderableType | Finding, width: int = 100) -> str:
    """Returns tables and findings as plain text without colours.

    Args:
        *parts: What rich can draw, and findings.
        width: Columns of the text.
    """
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as captured:
        show(*parts, console=console)
    return captured.get()


def finding_text(finding: Finding) -> Text:
    """Returns a finding as text with its severity in front."""
    style = _STYLES[finding.severity]
    return Text(f"{finding.severity}: ", style=style) + Text(str(finding), style="default")


class PrintedTable(Table):
    """A table that `print` shows as `rich.print` does, without its colours."""

    def __str__(self) -> str:
        return render(self, width=_FILE_COLUMNS)


def plan_figures(plan: BatchPlan) -> dict[str, tuple[Any, str]]:
    """Returns what a plan decides: name to value and meaning."""
    figures: dict[str, tuple[Any, str]] = {
        "num_replicas": (plan.topology.num_replicas, str(plan.topology)),
        "global_batch_size": (plan.global_batch_size, "rows of a step over all replicas"),
        "per_replica_batch_size": (plan.per_replica_batch_size, "rows of a step on one replica"),
        "steps_per_epoch": (plan.steps_per_epoch, f"for {plan.num_samples} rows"),
        "steps_per_execution": (plan.steps_per_execution, "steps in one call"),
        "dropped_samples": (plan.dropped_samples, "rows left out of each epoch"),
    }
    if plan.num_validation_samples:
        meaning = f"for {plan.num_validation_samples} rows, none left out"
        figures["validation_steps"] = (plan.validation_steps, meaning)
    return figures


def plan_table(plan: BatchPlan) -> Table:
    """Returns what a plan decides, as a table."""
    return figures_table("Plan", plan_figures(plan))


def throughput_table(
    run: Throughput, title: str = "Throughput", one_replica_rate: float | None = None
) -> Table:
    """Returns what a run achieved, as a table.

    Args:
        run: The figures; what was not measured is shown as "unknown".
        title: Shown above the table.
        one_replica_rate: Samples per second of one replica alone, for scaling efficiency.
    """
    replicas = "1 replica" if run.num_replicas == 1 else f"{run.num_replicas} replicas"
    figures: dict[str, tuple[Any, str]] = {
        "samples per second": (_rate(run.samples_per_second), replicas),
        "per replica": (_rate(run.samples_per_second_per_replica), "samples per second"),
        "step": (_seconds(run.step_seconds), f"mean of {run.steps} steps"),
        "execution, median": (
            _seconds(run.execution_percentile(50)),
            f"of {len(run.execution_seconds)} executions",
        ),
        "execution, p95": (_seconds(run.execution_percentile(95)), "95 % are as fast or faster"),
    }
    if run.first_execution_seconds is not None:
        first = _seconds(run.first_execution_seconds)
        figures["first execution"] = (first, "tracing and compilation, left out above")
    figures["waiting for input"] = (describe_input_wait(run.input_wait_share), "share of the time")
    if run.mfu is not None:
        figures["MFU"] = (f"{run.mfu:.1%}", "operations done / the chips' peak")
    if one_replica_rate is not None:
        efficiency = run.scaling_efficiency(one_replica_rate)
        meaning = f"of {run.num_replicas} x {_rate(one_replica_rate)} samples per second"
        shown = "unknown" if math.isnan(efficiency) else f"{efficiency:.1%}"
        figures["scaling efficiency"] = (shown, meaning)
    return figures_table(title, figures)


def figures_table(title: str, figures: Mapping[str, tuple[Any, str]]) -> Table:
    """Returns name, value and meaning of some figures as a three-column table.

    Example:

    >>> print(render(figures_table("Plan", {"steps": (50, "an epoch")})).splitlines()[0].strip())
    Plan
    """
    rows = [(name, str(value), meaning) for name, (value, meaning) in figures.items()]
    return rows_table(title, ("", "value", "meaning"), rows)


def rows_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table whose first and last columns are text and the others numbers."""
    table = PrintedTable(title=title, title_justify="left", title_style="bold")
    for index, name in enumerate(header):
        is_number = 0 < index < len(header) - 1
        table.add_column(name, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _rate(per_second: float) -> str:
    return "unknown" if math.isnan(per_second) else f"{per_second:,.0f}"


def _seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return "unknown"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} µs"
