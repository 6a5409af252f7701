"""Strategies over logical CPU devices, which a process can make only once, on import."""

from __future__ import annotations

import functools

import tensorflow as tf

MOST = 8

_cpu = tf.config.list_physical_devices("CPU")[0]
if tf.config.get_logical_device_configuration(_cpu) is None:
    tf.config.set_logical_device_configuration(
        _cpu, [tf.config.LogicalDeviceConfiguration()] * MOST
    )


@functools.cache
def replicas(count: int) -> tf.distribute.Strategy:
    """Returns a mirrored strategy over the first `count` of eight logical CPU devices.

    The reduction is not TensorFlow's own: its collectives meet those of another strategy of the
    same process, and break.
    """
    return tf.distribute.MirroredStrategy(
        [f"CPU:{index}" for index in range(count)],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )
