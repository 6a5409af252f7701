"""The examples are short, run to their end, and stand in the docs as they are."""

from __future__ import annotations

import difflib
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(path: pathlib.Path, folder: pathlib.Path, *args: str) -> str:
    """Returns what a script prints, run in `folder` by a user without MNIST in Keras's cache."""
    done = subprocess.run(
        [sys.executable, str(path), *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def diff() -> list[str]:
    """Returns what the kit changes in the stock script, below the file's own docstring."""
    stock, kit = (
        (EXAMPLES / name).read_text().splitlines()[1:]
        for name in ("stock_project.py", "existing_project.py")
    )
    lines = difflib.unified_diff(stock, kit, "stock_project.py", "existing_project.py", lineterm="")
    return list(lines)


def test_the_page_on_existing_projects_shows_the_true_diff():
    page = (ROOT / "docs" / "existing_project.md").read_text()
    (shown,) = re.findall(r"^```diff\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert shown.splitlines() == diff()


def test_the_kit_adds_under_ten_lines():
    added = [line for line in diff()[2:] if line.startswith("+") and line.strip("+ ")]
    assert 0 < len(added) < 10


@pytest.mark.parametrize(
    "name", ["existing_project.py", "mnist.py", "stock_project.py", "tfrecords.py"]
)
def test_an_example_to_copy_from_is_under_80_lines(name):
    assert len((EXAMPLES / name).read_text().splitlines()) < 80


def test_mnist_learns_its_digits_on_eight_replicas(tmp_path):
    output = run(EXAMPLES / "mnist.py", tmp_path, "--simulate", "8")
    (accuracy,) = re.findall(r"^8 replicas on CPU: test accuracy (0\.\d+)", output, re.MULTILINE)
    assert float(accuracy) >= 0.95


def test_tfrecords_learns_from_files(tmp_path):
    output = run(EXAMPLES / "tfrecords.py", tmp_path)
    (accuracy,) = re.findall(r"^validation accuracy (0\.\d+)$", output, flags=re.MULTILINE)
    assert float(accuracy) >= 0.8


@pytest.mark.parametrize("name", ["stock_project.py", "existing_project.py"])
def test_a_project_learns_its_digits_with_and_without_the_kit(name, tmp_path):
    # The user's machine has two accelerators; this one simulates them.
    source = (EXAMPLES / name).read_text()
    script = tmp_path / name
    script.write_text(source.replace("detect_strategy()", "detect_strategy(simulate=2)"))
    output = run(script, tmp_path)
    (accuracy,) = re.findall(r"^test accuracy (0\.\d+)$", output, flags=re.MULTILINE)
    assert float(accuracy) >= 0.95
    header = (tmp_path / "log.csv").read_text().splitlines()[0]
    assert ("samples_per_second" in header) == (name == "existing_project.py")
    assert (tmp_path / "digits.keras").exists()
