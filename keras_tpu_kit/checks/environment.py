"""Rules on which installations work: versions and variables in, a finding out."""

from __future__ import annotations

import re
from collections.abc import Mapping

from keras_tpu_kit.errors import Finding

TENSORFLOW_RANGE = ((2, 19), (2, 22))
# The jax, jaxlib and libtpu that were compiled with together; others may not understand
# each other's programs.
COMPILER_TRIPLES = (("0.10.2", "0.10.2", "0.0.52"), ("0.5.2", "0.5.1", "0.0.10"))
_TPU_WHEEL = "tensorflow-tpu"


def check_wheels(wheels: Mapping[str, str]) -> Finding | None:
    """Returns a finding where two wheels write the module `tensorflow` over each other.

    Args:
        wheels: Names and versions of the installed wheels that provide it.

    Example:

    >>> check_wheels({"tensorflow": "2.20.0", "tensorflow-tpu": "2.19.1"}).code
    'tensorflow-over-tpu'
    >>> check_wheels({"tensorflow": "2.21.0"}) is None
    True
    """
    if len(wheels) < 2:
        return None
    names = " and ".join(f"{name} {version}" for name, version in sorted(wheels.items()))
    uninstall = f"pip uninstall -y {' '.join(sorted(wheels))}"
    if _TPU_WHEEL in wheels:
        return Finding(
            "tensorflow-over-tpu",
            "error",
            what=f"{names} are both installed.",
            why="Both install the module tensorflow, so the files of one replace the TPU kernels "
            'of the other ("No OpKernel was registered to support Op '
            "'ConfigureDistributedTPU'\").",
            fix=f"{uninstall} && pip install {_TPU_WHEEL}=={wheels[_TPU_WHEEL]}",
            cures=({"wheels": {_TPU_WHEEL: wheels[_TPU_WHEEL]}},),
        )
    keep = "tensorflow" if "tensorflow" in wheels else min(wheels)
    return Finding(
        "tensorflow-twice",
        "error",
        what=f"{names} are both installed.",
        why="Both install the module tensorflow and overwrite each other's files.",
        fix=f"{uninstall} && pip install {keep}=={wheels[keep]}",
        cures=({"wheels": {keep: wheels[keep]}},),
    )


def check_tensorflow_version(version: str) -> Finding | None:
    """Returns a finding where a TensorFlow is outside the range the kit is tested with.

    Example:

    >>> check_tensorflow_version("2.18.0").severity
    'error'
    """
    lowest, beyond = TENSORFLOW_RANGE
    if lowest <= _major_minor(version) < beyond:
        return None
    newer = _major_minor(version) >= beyond
    return Finding(
        "tensorflow-version",
        "warning" if newer else "error",
        what=f"TensorFlow {version} is {'newer than' if newer else 'older than'} what the kit is "
        "tested with.",
        why=f"The replicated step is tested on TensorFlow {lowest[0]}.{lowest[1]}.1 to "
        f"{beyond[0]}.{beyond[1] - 1}.",
        fix=f'pip install "tensorflow>={lowest[0]}.{lowest[1]}.1,<{beyond[0]}.{beyond[1]}"',
        cures=({"version": f"{lowest[0]}.{lowest[1]}.1"},),
    )


def check_python_version(python: tuple[int, int], wheels: Mapping[str, str]) -> Finding | None:
    """Returns a finding where the wheel for a TPU does not exist for this Python.

    Args:
        python: Major and minor version.
        wheels: Names and versions of the installed TensorFlow wheels.

    Example:

    >>> check_python_version((3, 13), {"tensorflow": "2.19.1"}).code
    'python-version'
    """
    old = [version for version in wheels.values() if _major_minor(version) < (2, 20)]
    if python < (3, 13) or not old:
        return None
    return Finding(
        "python-version",
        "error",
        what=f"Python {python[0]}.{python[1]} has no wheel of TensorFlow {old[0]}.",
        why="TensorFlow 2.19, the last that Keras names for TPUs, was built for Python 3.9 to "
        "3.12.",
        fix="Use Python 3.12, or on a CPU or GPU TensorFlow 2.20 or newer.",
        cures=({"python": (3, 12)}, {"wheels": {"tensorflow": "2.20.0"}}),
    )


def check_legacy_keras(use_legacy_keras: str | None) -> Finding | None:
    """Returns a finding where TensorFlow is told to use Keras 2.

    Args:
        use_legacy_keras: Value of TF_USE_LEGACY_KERAS, or `None`.

    Example:

    >>> check_legacy_keras("1").code
    'legacy-keras'
    """
    if (use_legacy_keras or "").lower() not in ("1", "true"):
        return None
    return Finding(
        "legacy-keras",
        "error",
        what=f"TF_USE_LEGACY_KERAS={use_legacy_keras} makes tf.keras Keras 2.",
        why="The kit replicates models of Keras 3; a Keras 2 model is of another class.",
        fix="Unset TF_USE_LEGACY_KERAS, and build models with keras, not tf_keras.",
        cures=({"use_legacy_keras": None},),
    )


def check_tensorboard(version: str | None) -> Finding | None:
    """Returns a finding where TensorBoard, which KerasTuner imports in each trial, is missing.

    Example:

    >>> check_tensorboard(None).severity
    'error'
    """
    if version is not None:
        return None
    return Finding(
        "tensorboard-missing",
        "error",
        what="tensorboard is not installed.",
        why="KerasTuner writes each trial's hyperparameters with it, so every trial of a search "
        "fails; TensorFlow 2.21 no longer brings it along.",
        fix="pip install tensorboard",
        cures=({"version": "2.20.0"},),
    )


def check_compiler_triple(
    jax: str | None, jaxlib: str | None, libtpu: str | None
) -> Finding | None:
    """Returns a finding where the packages that compile for a TPU may not fit together.

    Args:
        jax: Installed version, or `None`; likewise `jaxlib` and `libtpu`.

    Example:

    >>> check_compiler_triple("0.10.2", "0.10.2", "0.0.10").code
    'compiler-versions'
    """
    versions = (jax, jaxlib, libtpu)
    if jax is None or libtpu is None or versions in COMPILER_TRIPLES:
        return None
    best = COMPILER_TRIPLES[0]
    return Finding(
        "compiler-versions",
        "warning",
        what=f"jax {jax}, jaxlib {jaxlib} and libtpu {libtpu} were not tried together.",
        why="A libtpu that is older or newer than jax may not read its programs, so that "
        "compiling for a TPU ahead of time fails; training itself is not affected.",
        fix=f"In an environment of its own: pip install jax=={best[0]} jaxlib=={best[1]} "
        f"libtpu=={best[2]}",
        cures=({"jax": best[0], "jaxlib": best[1], "libtpu": best[2]},),
    )


def check_tpu_wheel(num_chips: int, wheels: Mapping[str, str]) -> Finding | None:
    """Returns a finding where TPU chips and the TensorFlow wheel do not belong together.

    Args:
        num_chips: TPU chips of this machine.
        wheels: Names and versions of the installed TensorFlow wheels.

    Example:

    >>> check_tpu_wheel(4, {"tensorflow": "2.21.0"}).code
    'tpu-without-kernels'
    """
    if num_chips and wheels and _TPU_WHEEL not in wheels:
        names = " ".join(sorted(wheels))
        return Finding(
            "tpu-without-kernels",
            "error",
            what=f"This machine has {num_chips} TPU chip{'s' if num_chips > 1 else ''}, and "
            f"{_describe(wheels)}.",
            why=f"Only the wheel {_TPU_WHEEL} holds the kernels that run on a TPU.",
            fix=f"pip uninstall -y {names} && pip install {_TPU_WHEEL}==2.19.1 , with Python 3.12 "
            "or older.",
            cures=({"wheels": {_TPU_WHEEL: "2.19.1"}},),
        )
    if not num_chips and _TPU_WHEEL in wheels:
        return Finding(
            "tpu-wheel-without-tpu",
            "warning",
            what=f"{_describe(wheels)}, and this machine shows no TPU chip.",
            why="Importing it may wait for minutes while it asks the cloud's metadata server for "
            "a TPU.",
            fix="export TPU_SKIP_MDS_QUERY=1 before Python starts, or install the wheel "
            "tensorflow instead.",
            cures=({"wheels": {"tensorflow": wheels[_TPU_WHEEL]}},),
        )
    return None


def check_gpu_visible(
    num_gpus: int, has_driver: bool, cuda_visible_devices: str | None, wheels: Mapping[str, str]
) -> Finding | None:
    """Returns a finding where the machine has an NVIDIA GPU that TensorFlow does not see.

    Args:
        num_gpus: GPUs that TensorFlow sees.
        has_driver: Whether the NVIDIA driver is loaded.
        cuda_visible_devices: Value of CUDA_VISIBLE_DEVICES, or `None` where it is not set.
        wheels: Names and versions of the installed TensorFlow wheels.

    Example:

    >>> check_gpu_visible(0, True, None, {"tensorflow": "2.21.0"}).code
    'gpu-not-seen'
    """
    if num_gpus or not has_driver:
        return None
    if cuda_visible_devices is not None and re.fullmatch(r"\s*(-1.*)?", cuda_visible_devices):
        return Finding(
            "gpu-hidden",
            "warning",
            what=f"CUDA_VISIBLE_DEVICES={cuda_visible_devices!r} hides the GPUs of this machine.",
            why="TensorFlow sees only the GPUs that it lists, so training would run on the CPU.",
            fix="unset CUDA_VISIBLE_DEVICES , or list the GPUs to use: "
            "export CUDA_VISIBLE_DEVICES=0,1",
            cures=({"num_gpus": 2, "cuda_visible_devices": "0,1"},),
        )
    version = wheels.get("tensorflow")
    pin = f"=={version}" if version else ""
    return Finding(
        "gpu-not-seen",
        "warning",
        what=f"The NVIDIA driver is loaded, but TensorFlow sees no GPU; {_describe(wheels)}.",
        why="TensorFlow needs CUDA and cuDNN of the versions that it was built with, and trains "
        "on the CPU without them.",
        fix=f'pip install "tensorflow[and-cuda]{pin}" , then restart; TensorFlow\'s own log '
        "(TF_CPP_MIN_LOG_LEVEL=0) names the library that it could not load.",
        cures=({"num_gpus": 1},),
    )


def _describe(wheels: Mapping[str, str]) -> str:
    """Returns the installed TensorFlow wheels in words."""
    if not wheels:
        return "no TensorFlow wheel is installed"
    names = [f"{name} {version}" for name, version in sorted(wheels.items())]
    return " and ".join(names) + (" is" if len(names) == 1 else " are") + " installed"


def _major_minor(version: str) -> tuple[int, int]:
    """Returns the first two numbers of a version."""
    numbers = re.findall(r"\d+", version)
    return int(numbers[0]), int(numbers[1])
