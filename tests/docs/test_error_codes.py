"""`docs/errors.md` has one heading for each code that the kit can say, and no other."""

from __future__ import annotations

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text()
CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


def codes_of(path: pathlib.Path) -> set[str]:
    """Returns the first arguments of all calls of `Finding` in a file.

    Where a code is handed on by name, every word-with-dashes of that file counts as one.
    """
    codes = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Finding":
            (code,) = node.args[:1] or [k.value for k in node.keywords if k.arg == "code"]
            codes |= {text for text in strings_in(code) if CODE.fullmatch(text)} or {
                text for text in strings_in(tree) if CODE.fullmatch(text)
            }
    return codes


def strings_in(tree: ast.AST) -> set[str]:
    constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def sections() -> dict[str, str]:
    """Returns the text under each second-level heading of the page."""
    parts = re.split(r"^## `(.+)`$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_code_has_a_heading_and_every_heading_a_code():
    codes = set().union(*(codes_of(path) for path in (ROOT / "keras_tpu_kit").rglob("*.py")))
    assert len(codes) > 50
    headings = set(sections())
    assert codes - headings == set(), "These codes have no heading in docs/errors.md."
    assert headings - codes == set(), "These headings have no code in the source."


def test_headings_stand_in_alphabetical_order_each_once():
    headings = re.findall(r"^## `(.+)`$", PAGE, flags=re.MULTILINE)
    assert headings == sorted(set(headings))


def test_every_heading_says_when_why_and_cure():
    for code, text in sections().items():
        assert re.match(r"\n\n(Error|Warning|Info)\b", text), code
        for word in ("When", "Why", "Cure"):
            assert f"- **{word}:** " in text, (code, word)
