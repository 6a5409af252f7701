"""Every command and option that the docs and the messages name exists."""

from __future__ import annotations

import argparse
import pathlib
import re

import pytest

from keras_tpu_kit.cli import build_parser

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS += sorted((ROOT / "keras_tpu_kit").rglob("*.py"))
# A command ends with its line, or where prose goes on.
COMMAND = re.compile(r"keras-tpu-kit ([a-z]+)((?: +(?!keras-tpu-kit)[^\s`'\",;|]+)*)")


def options() -> dict[str, set[str]]:
    """Returns the options of each command."""
    (commands,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return {
        name: {option for action in parser._actions for option in action.option_strings}
        for name, parser in commands.choices.items()
    }


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_a_text_names_exist(path):
    known = options()
    for command, arguments in COMMAND.findall(path.read_text()):
        # `launch train.py --epochs 3`: from the script on, the options are the script's.
        own = re.split(r"\S+\.py\b", arguments)[0] if command == "launch" else arguments
        if command in known:
            asked = set(re.findall(r"(?<= )--[a-z][a-z-]*", own))
            assert asked <= known[command], (command, asked - known[command])
        else:
            assert "--" not in arguments, command


def test_commands_are_found_in_texts():
    found = {command for path in TEXTS for command, _ in COMMAND.findall(path.read_text())}
    assert {"plan", "demo", "doctor", "preflight", "launch", "search"} <= found
