"""Reads what this machine says of its hardware, without waking it: variables, files, wheels."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Mapping

from keras_tpu_kit.backend import installed_wheels
from keras_tpu_kit.errors import Finding, HardwareError

# In the order in which TensorFlow's resolver reads them; COLAB_TPU_ADDR is an older one.
TPU_VARIABLES = (
    "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS",
    "TPU_NAME",
    "TPU_CONFIG",
    "COLAB_TPU_ADDR",
)
# Google's PCI vendor number, and the device numbers of its TPUs with their accelerator type.
# v2 and v3 share one number.
# Source: https://github.com/jax-ml/jax/blob/main/jax/_src/hardware_utils.py
_GOOGLE = "0x1ae0"
_TPU_DEVICES = {
    "0x0027": None,
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
}


def tpu_in_environment(variables: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """Returns the TPU that a variable names, and the variable; `None` where none does.

    Args:
        variables: The environment, by default this process's.

    Raises:
        HardwareError: If TPU_CONFIG is not JSON.

    Example:

    >>> tpu_in_environment({"COLAB_TPU_ADDR": "10.0.0.2:8470"})
    ('grpc://10.0.0.2:8470', 'COLAB_TPU_ADDR')
    """
    variables = os.environ if variables is None else variables
    for name in TPU_VARIABLES:
        value = variables.get(name)
        if not value:
            continue
        if name == "TPU_CONFIG":
            value = _node_name(value)
        if name == "COLAB_TPU_ADDR" and not value.startswith("grpc://"):
            value = f"grpc://{value}"
        return value, name
    return None


def tpu_chips(root: str | os.PathLike[str] = "/") -> list[str | None]:
    """Returns the accelerator type of each TPU chip on this machine, `None` where it is not sure.

    Args:
        root: Where the file system starts; tests pass another.
    """
    devices = pathlib.Path(root, "sys/bus/pci/devices")
    chips = []
    for device in sorted(devices.glob("*")) if devices.is_dir() else ():
        kind = _text(device / "device")
        if _text(device / "vendor") == _GOOGLE and kind in _TPU_DEVICES:
            chips.append(_TPU_DEVICES[kind])
    if chips:
        return chips
    # Containers may hide the PCI bus, not the device files.
    return [None] * len(list(pathlib.Path(root, "dev").glob("accel[0-9]*")))


def tpu_accelerator_type() -> str | None:
    """Returns the TPU's accelerator type (`"v3-8"`), as a variable or the chips say it."""
    if os.environ.get("TPU_ACCELERATOR_TYPE"):
        return os.environ["TPU_ACCELERATOR_TYPE"]
    kinds = set(tpu_chips())
    return kinds.pop() if len(kinds) == 1 else None


def has_nvidia_driver(root: str | os.PathLike[str] = "/") -> bool:
    """Returns whether the NVIDIA driver is loaded."""
    return pathlib.Path(root, "proc/driver/nvidia/version").exists()


def spare_the_metadata_query() -> None:
    """Keeps TensorFlow's TPU wheel from asking the cloud for a TPU where there is none.

    Without a TPU that question can hold up `import tensorflow` for minutes, so it is only of
    use before TensorFlow is imported for the first time.
    """
    if (
        "tensorflow-tpu" in installed_wheels()
        and not tpu_chips()
        and "tensorflow" not in sys.modules
    ):
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")


def describe_surroundings() -> str:
    """Returns wheels, chips and variables about hardware in one sentence, for error messages."""
    wheels = [f"{name} {version}" for name, version in sorted(installed_wheels().items())]
    names = (*TPU_VARIABLES, "TPU_ACCELERATOR_TYPE", "CUDA_VISIBLE_DEVICES", "TF_CONFIG")
    variables = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    chips = len(tpu_chips())
    return (
        f"wheels: {', '.join(wheels) or 'none'}; TPU chips: {chips or 'none'}; NVIDIA driver: "
        f"{'loaded' if has_nvidia_driver() else 'not loaded'}; variables: "
        f"{', '.join(variables) or 'none'}"
    )


def _node_name(text: str) -> str:
    """Returns the TPU's name in TPU_CONFIG."""
    try:
        return str(json.loads(text)["tpu_node_name"])
    except (ValueError, KeyError, TypeError) as error:
        raise HardwareError(
            Finding(
                "tpu-config-malformed",
                "error",
                what=f"TPU_CONFIG={text!r} cannot be read ({error}).",
                why="TensorFlow expects a JSON object with the TPU's name in it.",
                fix='Write it as {"tpu_node_name": "my-tpu", "zone": "...", "project": "..."} , '
                "or unset it.",
            )
        ) from error


def _text(path: pathlib.Path) -> str:
    """Returns what a file of the kernel says, or nothing where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
