"""Makes sure that Keras runs on a supported TensorFlow, before anything imports it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import sys

from keras_tpu_kit.errors import BackendError, Finding, refuse

INSTALL_TENSORFLOW = 'pip install "keras_tpu_kit[tensorflow]"'
INSTALL_TENSORFLOW_TPU = 'pip install "keras_tpu_kit[tpu]"'
MINIMUM_KERAS = (3, 12)
TENSORFLOW_WHEELS = (
    "tensorflow",
    "tensorflow-tpu",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-macos",
    "tf-nightly",
)


def installed_version(distribution: str) -> str | None:
    """Returns the installed version of a distribution, or `None` where it is missing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_wheels() -> dict[str, str]:
    """Returns the wheels here that provide the module `tensorflow`, with their versions.

    More than one is a fault: they overwrite each other's files.
    """
    versions = {name: installed_version(name) for name in TENSORFLOW_WHEELS}
    return {name: version for name, version in versions.items() if version is not None}


def keras_backend() -> str:
    """Returns the backend that Keras runs on, or would choose, without importing it.

    The order is Keras's own: a Keras that is imported already, `KERAS_BACKEND`, then
    `keras.json` in `KERAS_HOME` or `~/.keras`, then `"tensorflow"`.
    Source: https://keras.io/getting_started/#configuring-your-backend
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "config"):
        return str(keras.config.backend())
    if os.environ.get("KERAS_BACKEND"):
        return os.environ["KERAS_BACKEND"]
    try:
        return str(json.loads((keras_home() / "keras.json").read_text())["backend"])
    except (OSError, ValueError, KeyError, TypeError):
        return "tensorflow"


def keras_home() -> pathlib.Path:
    """Returns the folder where Keras keeps its settings and data sets."""
    return pathlib.Path(os.environ.get("KERAS_HOME") or pathlib.Path("~/.keras").expanduser())


def problem() -> Finding | None:
    """Returns why the parts above the wall cannot work here, or `None`.

    Nothing heavy is imported, so the answer costs milliseconds.

    Example:

    >>> problem() is None
    True
    """
    if importlib.util.find_spec("tensorflow") is None:
        return Finding(
            "tensorflow-missing",
            "error",
            what="TensorFlow is not installed.",
            why="Strategies, models and training run on it; it is not a requirement of the kit, "
            "since installing it over tensorflow-tpu would remove the TPU's kernels.",
            fix=f"On a CPU or GPU machine: {INSTALL_TENSORFLOW} ; on a TPU VM: "
            f"{INSTALL_TENSORFLOW_TPU} .",
        )
    if keras_backend() != "tensorflow":
        return Finding(
            "keras-backend",
            "error",
            what=f"Keras is set to its {keras_backend()!r} backend.",
            why="tf.distribute strategies replicate TensorFlow variables only.",
            fix='Set KERAS_BACKEND="tensorflow" before Keras is imported, or remove "backend" '
            "from ~/.keras/keras.json, and restart.",
        )
    version = installed_version("keras")
    if version is not None and _major_minor(version) < MINIMUM_KERAS:
        minimum = ".".join(map(str, MINIMUM_KERAS))
        return Finding(
            "keras-too-old",
            "error",
            what=f"Keras {version} is older than {minimum}.",
            why="The replicated step is built on the trainer of Keras "
            f"{minimum} and tested from there on.",
            fix=f'pip install "keras>={minimum}" , which leaves TensorFlow as it is.',
        )
    return None


def require_tensorflow() -> None:
    """Raises a clear error where TensorFlow, or Keras on TensorFlow, is not there.

    Raises:
        BackendError: With the command that installs, or the setting that mends it.
    """
    finding = problem()
    refuse(BackendError, finding)


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
