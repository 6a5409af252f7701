"""Says what a strategy is, as a `Topology`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from keras_tpu_kit.backend import require_tensorflow
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.chips import gpu_chip, tpu_chip
from keras_tpu_kit.strategy.environment import tpu_accelerator_type
from keras_tpu_kit.topology import Accelerator, Topology

if TYPE_CHECKING:
    import tensorflow as tf


def describe_strategy(strategy: tf.distribute.Strategy) -> Topology:
    """Returns the shape of the hardware that a strategy trains on.

    Args:
        strategy: Any synchronous `tf.distribute` strategy, made by `detect_strategy` or not:
            `TPUStrategy`, `MirroredStrategy`, `MultiWorkerMirroredStrategy`,
            `OneDeviceStrategy`, or the default one of `tf.distribute.get_strategy()`.

    Raises:
        HardwareError: If the replicas of the strategy do not train in step (parameter
            servers, central storage).

    Example:

    >>> import tensorflow as tf
    >>> str(describe_strategy(tf.distribute.OneDeviceStrategy("/cpu:0")))
    '1 replica on CPU'
    """
    require_tensorflow()
    import tensorflow as tf

    _refuse_asynchronous(strategy)
    if isinstance(strategy, (tf.distribute.TPUStrategy, tf.distribute.experimental.TPUStrategy)):
        return Topology(
            accelerator="tpu",
            num_replicas=strategy.num_replicas_in_sync,
            chip=tpu_chip(tpu_accelerator_type()),
            devices=strategy.extended.worker_devices,
        )
    devices = _devices(strategy)
    accelerator = _accelerator(devices[0])
    num_workers, worker_index = _place_among_workers(strategy)
    return Topology(
        accelerator=accelerator,
        num_replicas=strategy.num_replicas_in_sync,
        num_workers=num_workers,
        worker_index=worker_index,
        chip=_common_gpu_chip() if accelerator == "gpu" else None,
        devices=devices,
    )


def _devices(strategy: tf.distribute.Strategy) -> tuple[str, ...]:
    """Returns the devices that this process's replicas run on."""
    import tensorflow as tf

    if type(strategy) is type(tf.distribute.get_strategy()) and not tf.distribute.has_strategy():
        gpus = tf.config.list_logical_devices("GPU")
        return ((gpus or tf.config.list_logical_devices("CPU"))[0].name,)
    return tuple(strategy.extended.worker_devices)


def _accelerator(device: str) -> Accelerator:
    """Returns the kind of a device by its name."""
    import tensorflow as tf

    kind = tf.DeviceSpec.from_string(device).device_type.lower()
    if kind not in ("cpu", "gpu"):
        raise HardwareError(
            Finding(
                "unknown-device",
                "error",
                what=f"The strategy trains on {device}, which is neither a TPU, a GPU nor a CPU.",
                why="Batch advice and device peaks depend on the kind of hardware.",
                fix="Use a strategy from detect_strategy().",
            )
        )
    return cast(Accelerator, kind)


def _place_among_workers(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """Returns how many workers train together, and which of them this one is; 0 is the chief."""
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict() if resolver is not None else {}
    num_chiefs = len(cluster.get("chief", ()))
    num_workers = num_chiefs + len(cluster.get("worker", ()))
    if num_workers < 2:
        return 1, 0
    before = 0 if resolver.task_type == "chief" else num_chiefs
    return num_workers, before + resolver.task_id


def _common_gpu_chip() -> str | None:
    """Returns the chip of the GPUs that TensorFlow sees, where all are the same known one."""
    import tensorflow as tf

    names = {
        tf.config.experimental.get_device_details(gpu).get("device_name")
        for gpu in tf.config.get_visible_devices("GPU")
    }
    return gpu_chip(names.pop()) if len(names) == 1 else None


def _refuse_asynchronous(strategy: tf.distribute.Strategy) -> None:
    """Raises for strategies whose replicas do not train in step."""
    import tensorflow as tf

    if isinstance(
        strategy,
        (
            tf.distribute.ParameterServerStrategy,
            tf.distribute.experimental.CentralStorageStrategy,
        ),
    ):
        raise HardwareError(
            Finding(
                "strategy-not-synchronous",
                "error",
                what=f"{type(strategy).__name__} does not mirror its variables.",
                why="Plans, checks and the replicated step are about replicas that train in step, "
                "each with its own copy of every weight.",
                fix="Use detect_strategy(), or a MirroredStrategy, MultiWorkerMirroredStrategy, "
                "TPUStrategy or OneDeviceStrategy.",
            )
        )
