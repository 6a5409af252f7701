"""The wheel and the sdist build, and the wheel works where TensorFlow is not."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def output_of(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    """Returns what a command prints, run where the package's own folder is not in sight."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> pathlib.Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    output_of(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def python(dist, tmp_path_factory) -> pathlib.Path:
    """The interpreter of an environment that holds the wheel and its requirements only."""
    folder = tmp_path_factory.mktemp("without-tensorflow")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    output_of(python, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    return python


def test_the_wheel_holds_the_package_its_types_and_nothing_else(dist):
    (path,) = dist.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert "keras_tpu_kit/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"keras_tpu_kit"}
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "keras_tpu_kit").rglob("*.py")}
    assert modules <= set(names)


def test_the_sdist_holds_what_a_build_needs(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"} <= names


def test_no_requirement_brings_tensorflow(python):
    installed = output_of(python, "-m", "pip", "list", "--format=freeze", cwd=python.parent)
    names = {line.split("==")[0].lower() for line in installed.splitlines()}
    assert "keras-tpu-kit" in {name.replace("_", "-") for name in names}
    assert not {name for name in names if name.startswith(("tensorflow", "jax", "libtpu"))}


def test_pure_names_work_without_tensorflow(python):
    script = (
        "import keras_tpu_kit as ktk\n"
        "topology = ktk.Topology(accelerator='tpu', num_replicas=8)\n"
        "plan = ktk.plan_batches(topology, num_samples=60_000, global_batch_size=1200)\n"
        "print(plan.steps_per_epoch)\n"
    )
    assert output_of(python, "-c", script, cwd=python.parent) == "50\n"


def test_other_names_say_how_to_install_tensorflow(python):
    script = (
        "import keras_tpu_kit as ktk\n"
        "try:\n"
        "    ktk.ModelFactory\n"
        "except ktk.BackendError as error:\n"
        "    print(error)\n"
    )
    message = output_of(python, "-c", script, cwd=python.parent)
    assert "TensorFlow is not installed." in message
    assert 'pip install "keras_tpu_kit[tensorflow]"' in message


def test_the_command_plans_without_tensorflow(python):
    command = python.with_name("keras-tpu-kit")
    arguments = "plan --accelerator tpu --replicas 8 --samples 60000 --batch 1200 --json"
    assert '"steps_per_epoch": 50' in output_of(command, *arguments.split(), cwd=python.parent)
    assert output_of(command, "--version", cwd=python.parent).startswith("keras-tpu-kit ")


def test_a_command_that_needs_tensorflow_says_so_and_exits_with_2(python):
    command = [python.with_name("keras-tpu-kit"), "demo"]
    done = subprocess.run(command, cwd=python.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "TensorFlow is not installed." in done.stderr
    assert "Traceback" not in done.stderr
