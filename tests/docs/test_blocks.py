"""The Python blocks of README.md and of the pages under docs/ run, page by page, top to bottom.

A block is left out where a comment before it says why: `<!-- not run: needs a TPU -->`. A block
inside a comment runs like any other: it prepares what a page takes for granted.
"""

from __future__ import annotations

import pathlib
import re

import keras
import pytest

from keras_tpu_kit.strategy import detection

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n+)?^(?P<indent> *)```(?:python|py)\b[^\n]*\n"
    r"(?P<code>.*?)^ *```$",
    flags=re.MULTILINE | re.DOTALL,
)


def blocks(page: pathlib.Path) -> list[tuple[int, str]]:
    """Returns the Python blocks of a page that shall run, each with its first line's number."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        if match["skip"]:
            continue
        width = len(match["indent"])
        code = "\n".join(line[width:] for line in match["code"].splitlines())
        found.append((text.count("\n", 0, match.start("code")) + 1, code))
    return found


@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_blocks_of_a_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Each page begins as a process that has not asked for hardware yet.
    monkeypatch.setattr(detection, "_served", [])
    keras.utils.set_random_seed(1)
    namespace = {"__name__": f"blocks of {page.name}"}
    for line, code in blocks(page):
        # The padding makes tracebacks name the page's own lines.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), namespace)


def test_blocks_are_found():
    assert blocks(ROOT / "README.md")
