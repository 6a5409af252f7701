"""Which part of a machine each worker of a search gets."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence

from keras_tpu_kit import processes
from keras_tpu_kit.checks import service as rules
from keras_tpu_kit.errors import HardwareError, refuse

CPUS_VARIABLE = "KERAS_TPU_KIT_CPUS"

# Where the drivers of Cloud TPU VMs show their chips.
_TPU_DEVICES = ("/dev/accel0", "/dev/vfio/0")


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a machine has to share.

    Args:
        cpus: Numbers of the CPU cores that this process may use.
        gpus: Names of its GPUs, as `CUDA_VISIBLE_DEVICES` takes them.
        has_tpu: Whether it is a TPU's host.
        hides_gpus: Whether GPUs that it may have are to be left alone.

    Example:

    >>> machine = Machine(cpus=(0, 1, 2, 3))
    >>> [share["KERAS_TPU_KIT_CPUS"] for share in machine.shares(2)]
    ['0,1', '2,3']
    """

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    has_tpu: bool = False
    hides_gpus: bool = False

    def shares(self, num_workers: int) -> list[dict[str, str]]:
        """Returns for each worker the variables that keep it to its share.

        Args:
            num_workers: Processes that train at once.

        Raises:
            HardwareError: If the machine cannot be shared by so many.
        """
        finding = rules.check_workers(num_workers, len(self.gpus), self.has_tpu)
        refuse(HardwareError, finding)
        if self.has_tpu:
            return [{}]
        if self.gpus:
            return [
                {"CUDA_VISIBLE_DEVICES": ",".join(part)} for part in _split(self.gpus, num_workers)
            ]
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if self.hides_gpus else {}
        return [
            {CPUS_VARIABLE: ",".join(part), **hidden} for part in _split(self.cpus, num_workers)
        ]


def this_machine(accelerator: str = "auto", variables: Mapping[str, str] = os.environ) -> Machine:
    """Returns what this machine has, without TensorFlow.

    Args:
        accelerator: `"auto"`, or `"cpu"` or `"gpu"` to leave the rest alone.
        variables: The environment; `CUDA_VISIBLE_DEVICES` hides GPUs from the search too.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    has_tpu = accelerator in ("auto", "tpu") and any(
        pathlib.Path(device).exists() for device in _TPU_DEVICES
    )
    gpus = _gpus(variables) if accelerator in ("auto", "gpu") and not has_tpu else ()
    return Machine(cpus, gpus, has_tpu, hides_gpus=accelerator == "cpu")


def keep_to_share(variables: Mapping[str, str] = os.environ) -> None:
    """Keeps this process to the cores that it was given; TensorFlow counts its threads by them."""
    text = variables.get(CPUS_VARIABLE)
    if text:
        os.sched_setaffinity(0, {int(number) for number in text.split(",")})


def _gpus(variables: Mapping[str, str]) -> tuple[str, ...]:
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(name for name in visible.split(",") if name.strip() not in ("", "-1"))
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=index", "--format=csv,noheader"]
    code, output = processes.run_limited(command, timeout=20)
    return tuple(output.split()) if code == 0 else ()


def _split(things: Sequence[object], num_parts: int) -> list[list[str]]:
    """Returns things in parts that differ by one at most; too few things are used in turn."""
    names = [str(thing) for thing in things]
    if num_parts > len(names):
        return [[names[part % len(names)]] for part in range(num_parts)]
    bounds = [part * len(names) // num_parts for part in range(num_parts + 1)]
    return [names[bounds[part] : bounds[part + 1]] for part in range(num_parts)]
