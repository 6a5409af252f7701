"""The hardware that a preflight is meant for, by name."""

from __future__ import annotations

import dataclasses
import re

from keras_tpu_kit.errors import HardwareError
from keras_tpu_kit.topology import Accelerator, Topology
from keras_tpu_kit.tpu_types import TpuType, tpu_type, unknown_tpu


@dataclasses.dataclass(frozen=True)
class Target:
    """Where training is meant to run.

    Args:
        topology: Its replicas.
        tpu: The slice, or `None` for GPUs and the CPU.
    """

    topology: Topology
    tpu: TpuType | None


def target(name: str) -> Target:
    """Returns the hardware of a name: a TPU type, `"gpu"`, `"cpu"`, or `"gpu-4"` for four.

    Raises:
        HardwareError: If there is no such TPU type.

    Example:

    >>> str(target("gpu-4").topology), str(target("v2-8").topology)
    ('4 replicas on GPU', '8 replicas on TPU (TPU v2)')
    """
    if not isinstance(name, str):
        raise HardwareError(unknown_tpu(str(name)))
    other = re.fullmatch(r"(gpu|cpu)(?:-(\d+))?", name.strip().lower())
    if other:
        accelerator: Accelerator = "gpu" if other[1] == "gpu" else "cpu"
        return Target(Topology(accelerator=accelerator, num_replicas=int(other[2] or 1)), None)
    slice_ = tpu_type(name)
    return Target(slice_.topology, slice_)
