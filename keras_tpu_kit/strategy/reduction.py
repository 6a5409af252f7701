"""How the gradients of the replicas are summed, by name."""

from __future__ import annotations

from typing import Any

from keras_tpu_kit.errors import Finding, HardwareError

REDUCTIONS = ("nccl", "hierarchical", "one_device")


def cross_device_ops(reduction: Any, *, collectives_are_safe: bool) -> Any:
    """Returns the `tf.distribute.CrossDeviceOps` that a reduction's name stands for.

    Args:
        reduction: One of `REDUCTIONS`, a `tf.distribute.CrossDeviceOps`, or `None` for the
            best that is safe.
        collectives_are_safe: Whether TensorFlow's own choice may be taken for `None`. Ring
            collectives between logical CPU devices are not: a second strategy in the same
            process meets the collective groups of the first.

    Raises:
        HardwareError: If the name is unknown.
    """
    import tensorflow as tf

    if isinstance(reduction, tf.distribute.CrossDeviceOps):
        return reduction
    if reduction is None:
        return None if collectives_are_safe else tf.distribute.ReductionToOneDevice()
    classes = {
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
        "one_device": tf.distribute.ReductionToOneDevice,
    }
    if reduction not in classes:
        raise HardwareError(
            Finding(
                "unknown-reduction",
                "error",
                what=f"reduction={reduction!r} is not known.",
                why="It names how the gradients of the replicas are summed.",
                fix=f"Use one of {', '.join(map(repr, REDUCTIONS))}, a "
                "tf.distribute.CrossDeviceOps, or leave it out.",
                cures=tuple({"reduction": name} for name in REDUCTIONS),
            )
        )
    return classes[reduction]()
