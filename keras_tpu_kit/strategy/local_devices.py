"""GPUs of this machine: one, several, or the chosen ones; and chosen CPU devices."""

from __future__ import annotations

import os
import re
from typing import Any

from keras_tpu_kit.backend import installed_wheels
from keras_tpu_kit.checks.environment import check_gpu_visible
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.environment import describe_surroundings, has_nvidia_driver
from keras_tpu_kit.strategy.outcome import Found
from keras_tpu_kit.strategy.reduction import cross_device_ops
from keras_tpu_kit.topology import Accelerator


def find_gpus(reduction: Any = None) -> Found | Finding:
    """Returns the strategy of all GPUs that TensorFlow sees, or why there is none."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return _no_gpu()
    names = tuple(f"GPU:{place}" for place in range(len(tf.config.list_logical_devices("GPU"))))
    return _over(names, reduction, "TensorFlow sees " + _count(names))


def find_devices(devices: tuple[str, ...], reduction: Any = None) -> Found:
    """Returns the strategy of the chosen devices.

    Args:
        devices: Such as `("GPU:0", "GPU:1")` or `("/cpu:0",)`.
        reduction: How gradients are summed, or `None`.

    Raises:
        HardwareError: If one does not exist. TensorFlow itself would accept it, and then block
            for ever while the model is built.
    """
    import tensorflow as tf

    existing = [
        _short_name(device.name)
        for kind in ("GPU", "CPU")
        for device in tf.config.list_logical_devices(kind)
    ]
    names = tuple(_short_name(device) for device in devices)
    missing = [given for given, name in zip(devices, names, strict=True) if name not in existing]
    if missing or not names or len(set(names)) < len(names):
        raise HardwareError(
            Finding(
                "devices-missing",
                "error",
                what=f"devices={list(devices)!r} cannot be used: "
                + (f"{', '.join(missing)} is not here." if missing else "name each device once."),
                why=f"TensorFlow has {', '.join(existing)} ({describe_surroundings()}), and a "
                "strategy over others would block for ever.",
                fix=f"Use devices={existing[:1]!r}, or any of those.",
                cures=({"devices": tuple(existing[:1])},),
            )
        )
    return _over(names, reduction, "devices were chosen")


def _over(names: tuple[str, ...], reduction: Any, reason: str) -> Found:
    """Returns the strategy over devices that exist."""
    import tensorflow as tf

    accelerator: Accelerator = "gpu" if names[0].startswith("GPU") else "cpu"
    if len(names) == 1:
        return Found(tf.distribute.OneDeviceStrategy(f"/{names[0]}"), accelerator, reason)
    summed = cross_device_ops(reduction, accelerator)
    return Found(
        tf.distribute.MirroredStrategy(names, cross_device_ops=summed),
        accelerator,
        reason,
        uses_collectives=summed is None,
    )


def _no_gpu() -> Finding:
    """Returns why no GPU is there."""
    finding = check_gpu_visible(
        0, has_nvidia_driver(), os.environ.get("CUDA_VISIBLE_DEVICES"), installed_wheels()
    )
    if finding is not None:
        return finding
    return Finding(
        "gpu-missing",
        "error",
        what="TensorFlow sees no GPU, and no NVIDIA driver is loaded.",
        why=f"A GPU was looked for among TensorFlow's devices ({describe_surroundings()}).",
        fix='Use a machine (in Colab: a runtime) with a GPU, or accelerator="cpu".',
    )


def _short_name(device: str) -> str:
    """Returns a device as `GPU:0`, however it was spelled."""
    match = re.search(r"(?:^|/|device:)(gpu|cpu):(\d+)$", device, flags=re.IGNORECASE)
    return f"{match[1].upper()}:{match[2]}" if match else device


def _count(names: tuple[str, ...]) -> str:
    return "1 GPU" if len(names) == 1 else f"{len(names)} GPUs"
