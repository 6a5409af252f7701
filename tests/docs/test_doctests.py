"""The examples in all docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PURE = ("errors", "throughput", "processes", "checks", "backend", "learning_rate", "topology")
PURE += ("plan", "report", "cluster", "searching", "tpu_types")


def module_names() -> list[str]:
    """Returns the names of all modules of the package, without importing any."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "keras_tpu_kit").rglob("*.py"))
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(names - {"keras_tpu_kit.__main__"})


def is_pure(name: str) -> bool:
    return name.count(".") > 0 and name.split(".")[1] in PURE


@pytest.mark.parametrize("name", [name for name in module_names() if not is_pure(name)])
def test_examples_of_a_module(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_examples_below_the_wall_run_without_tensorflow():
    script = (
        "import doctest, importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    assert doctest.testmod(importlib.import_module(name)).failed == 0, name\n"
        "for name in ('tensorflow', 'keras', 'keras_tuner'):\n"
        "    assert name not in sys.modules, f'{name} was imported'\n"
    )
    pure = [name for name in module_names() if is_pure(name)]
    assert len(pure) >= len(PURE) - 1
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *pure],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
