"""CPU replicas: one, or several logical devices that stand in for accelerators."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.outcome import Found
from keras_tpu_kit.strategy.reduction import cross_device_ops


def find_cpu() -> Found:
    """Returns the strategy of one CPU; mirroring over a single device would cost half its speed."""
    import tensorflow as tf

    return Found(tf.distribute.OneDeviceStrategy("/cpu:0"), "cpu", "every machine has one")


def simulate_replicas(num_replicas: int, reduction: Any = None) -> Found:
    """Returns a mirrored strategy over logical CPU devices, which are made if need be.

    Raises:
        HardwareError: If TensorFlow has started with fewer logical devices than are asked for.
    """
    import tensorflow as tf

    _make_logical_cpus(num_replicas)
    reason = f"simulate={num_replicas}"
    if num_replicas == 1:
        return dataclasses.replace(find_cpu(), reason=reason)
    strategy = tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(num_replicas)],
        cross_device_ops=cross_device_ops(reduction, "cpu"),
    )
    return Found(strategy, "cpu", reason)


def _make_logical_cpus(num_replicas: int) -> None:
    """Cuts the first CPU into logical devices, or uses those that were cut before."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    configured = tf.config.get_logical_device_configuration(cpu)
    if configured is not None and len(configured) >= num_replicas:
        return
    # TensorFlow refuses once its devices exist; what it refuses is told below.
    with contextlib.suppress(RuntimeError):
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * num_replicas
        )
        return
    available = len(tf.config.list_logical_devices("CPU"))
    if available >= num_replicas:
        return
    raise HardwareError(
        Finding(
            "simulate-too-late",
            "error",
            what=f"simulate={num_replicas} was asked for after TensorFlow had started with "
            f"{available} logical CPU device{'s' if available > 1 else ''}.",
            why="TensorFlow fixes its devices at the first operation, and cannot cut the CPU into "
            "more of them afterwards.",
            fix=f"Restart the runtime (in a notebook: restart the kernel) and call "
            f"detect_strategy(simulate={num_replicas}) before anything else uses TensorFlow.",
            cures=({"simulate": available},),
        )
    )
