"""The house keeps its order: floors, names, and files that say why they are long."""

from __future__ import annotations

import configparser
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "keras_tpu_kit"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def layers() -> list[str]:
    """Returns the floors that the import contract names, the highest first."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["importlinter:contract:floors"]["layers"].split("\n")[1:]


def test_the_import_contracts_hold():
    command = pathlib.Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--config", "setup.cfg", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_the_page_shows_the_floors_of_the_contract():
    (shown,) = re.findall(
        r"<!-- The block is held to setup.cfg[^\n]*\n```text\n(.*?)```", PAGE, flags=re.DOTALL
    )
    assert shown.splitlines() == layers()


def test_every_module_stands_on_a_floor_and_in_the_table():
    told = set(re.findall(r"^\| `(\w+)` \| [^|]+ \| (?:no|yes|where)", PAGE, flags=re.MULTILINE))
    on_floors = {name.strip(" ()") for floor in layers() for name in floor.split("|")}
    assert told == on_floors
    modules = {path.stem for path in PACKAGE.glob("[a-z]*") if path.name != "py.typed"}
    assert modules <= on_floors


def test_no_module_is_a_drawer_for_odds_and_ends():
    drawers = {"utils", "util", "common", "helpers", "types", "constants", "misc"}
    assert not drawers & {path.stem for path in PACKAGE.rglob("*")}


def test_files_over_200_lines_say_why_and_no_others_do():
    told = set(re.findall(r"^\| `([\w/]+\.py)` \| \S", PAGE, flags=re.MULTILINE))
    long = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if len(path.read_text().splitlines()) > 200
    }
    assert long - told == set(), "These need a reason in docs/architecture.md, or to be shorter."
    assert told - long == set(), "These are short by now; drop them from docs/architecture.md."
