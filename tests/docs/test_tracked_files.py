"""What is kept in the repository speaks of the project alone."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Homes and mounts of one machine; each is written so that this file does not hold it.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|opt/v|root|home/\w+|Users/\w+)/")


def tracked_files() -> list[pathlib.Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_tracked_file_names_a_path_of_one_machine():
    found = []
    for path in tracked_files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # A picture or an archive.
        found += [f"{path.relative_to(ROOT)}: {hit}" for hit in MACHINE_PATH.findall(text)]
    assert found == []
