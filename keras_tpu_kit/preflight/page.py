"""A report as one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import html
import os
import pathlib

from rich.console import Console

from keras_tpu_kit import report as text_report
from keras_tpu_kit.preflight.pictures import pictures
from keras_tpu_kit.preflight.report import PreflightReport

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; color: #222; }}
pre {{ font: 13px/1.35 ui-monospace, monospace; overflow-x: auto; }}
img {{ max-width: 100%; }}
.verdict {{ font-size: 1.2rem; border-left: .4rem solid {colour}; padding-left: .8rem; }}
details {{ margin: 1rem 0; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p class="verdict">{verdict}</p>
{images}
<pre>{body}</pre>
{original}
</body>
</html>
"""


def page(report: PreflightReport) -> str:
    """Returns a report as the text of one HTML file, pictures included."""
    console = Console(record=True, width=110, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        text_report.show(*report._parts(), console=console)
        body = console.export_html(code_format="{code}", inline_styles=True)
    images = "\n".join(
        f'<img alt="{html.escape(title)}" src="data:image/png;base64,'
        f'{base64.b64encode(png).decode()}">'
        for title, png in pictures(report)
    )
    original = ""
    if report.original:
        told = html.escape(report.original)
        original = f"<details><summary>The original message</summary><pre>{told}</pre></details>"
    return _PAGE.format(
        title=html.escape(report.title),
        verdict=html.escape(report.verdict),
        colour="#D55E00" if report.has_errors else "#009E73",
        images=images,
        body=body,
        original=original,
    )


def write_page(report: PreflightReport, path: str | os.PathLike[str]) -> None:
    """Writes a report as one HTML file."""
    pathlib.Path(path).write_text(page(report), encoding="utf-8")
