"""How the gradients of the replicas are summed, by name."""

from __future__ import annotations

from typing import Any

from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.topology import Accelerator


def cross_device_ops(reduction: Any, accelerator: Accelerator) -> Any:
    """Returns the `tf.distribute.CrossDeviceOps` that a reduction's name stands for.

    For `None` that is TensorFlow's own choice on GPUs (NCCL), as `None`, and summing on one
    device between logical CPU devices: there the ring collectives, TensorFlow's choice, are
    slower, and a second strategy in the same process disturbs them.

    Args:
        reduction: `"nccl"`, `"hierarchical"`, `"one_device"`, a
            `tf.distribute.CrossDeviceOps`, or `None`.
        accelerator: What the replicas run on, `"gpu"` or `"cpu"`.

    Raises:
        HardwareError: If the name is unknown, or NCCL is asked for without GPUs.
    """
    import tensorflow as tf

    if isinstance(reduction, tf.distribute.CrossDeviceOps):
        return reduction
    if reduction is None:
        return None if accelerator == "gpu" else tf.distribute.ReductionToOneDevice()
    classes = {
        "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
        "one_device": tf.distribute.ReductionToOneDevice,
    }
    if accelerator == "gpu":
        classes["nccl"] = tf.distribute.NcclAllReduce
    elif reduction == "nccl":
        raise HardwareError(
            Finding(
                "nccl-without-gpu",
                "error",
                what=f"reduction='nccl' was asked for on {accelerator.upper()} replicas.",
                why="NCCL moves data between NVIDIA GPUs only.",
                fix="Use reduction='hierarchical' or 'one_device', or leave it out.",
                cures=tuple({"reduction": name} for name in classes),
            )
        )
    if reduction not in classes:
        raise unknown_reduction(reduction, tuple(classes))
    return classes[reduction]()


def unknown_reduction(reduction: Any, known: tuple[str, ...]) -> HardwareError:
    """Returns the error for a reduction that is not among the known ones."""
    return HardwareError(
        Finding(
            "unknown-reduction",
            "error",
            what=f"reduction={reduction!r} is not known here.",
            why="It names how the gradients of the replicas are summed.",
            fix=f"Use one of {', '.join(map(repr, known))}, or leave it out.",
            cures=tuple({"reduction": name} for name in known),
        )
    )
