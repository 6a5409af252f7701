"""Where training runs: the shape of the hardware, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

from keras_tpu_kit.errors import Finding, PlanError, refuse

Accelerator = Literal["tpu", "gpu", "cpu"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """The replicas that train together, and the workers that hold them.

    A replica is one copy of the model: a TPU core, a GPU, a (logical) CPU device. A worker
    is one process; each worker holds the same number of replicas.

    Args:
        accelerator: `"tpu"`, `"gpu"` or `"cpu"`.
        num_replicas: Replicas in sync over all workers, at least 1.
        num_workers: Processes that train together, at least 1.
        worker_index: Which of them this process is, from 0. Worker 0 is the chief: it alone
            writes files.
        chip: Name of one device as `throughput.CHIPS` spells it (`"TPU v3"`, `"T4"`), or
            `None` where it is unknown.
        devices: Names of this worker's devices, as TensorFlow spells them; may be empty.

    Raises:
        PlanError: If the numbers contradict each other.

    Example:

    >>> topology = Topology(accelerator="tpu", num_replicas=8, chip="TPU v3")
    >>> topology.replicas_per_worker
    8
    >>> Topology.from_dict(topology.to_dict()) == topology
    True
    """

    accelerator: Accelerator
    num_replicas: int = 1
    num_workers: int = 1
    worker_index: int = 0
    chip: str | None = None
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", tuple(self.devices))
        finding = _contradiction(self)
        refuse(PlanError, finding)

    @property
    def replicas_per_worker(self) -> int:
        """Replicas that this process drives."""
        return self.num_replicas // self.num_workers

    @property
    def is_replicated(self) -> bool:
        """Whether more than one replica trains, so that batches are cut and gradients summed."""
        return self.num_replicas > 1

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the files that all workers share."""
        return self.worker_index == 0

    def to_dict(self) -> dict[str, Any]:
        """Returns the topology as a dict of JSON types."""
        return {**dataclasses.asdict(self), "devices": list(self.devices)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Topology:
        """Returns the topology that `to_dict` wrote."""
        return cls(**fields)

    def __str__(self) -> str:
        chip = f" ({self.chip})" if self.chip else ""
        replicas = "1 replica" if self.num_replicas == 1 else f"{self.num_replicas} replicas"
        workers = f" on {self.num_workers} workers" if self.num_workers > 1 else ""
        return f"{replicas}{workers} on {self.accelerator.upper()}{chip}"


def _contradiction(topology: Topology) -> Finding | None:
    """Returns what is wrong with the numbers of `topology`, or `None`."""
    if topology.accelerator not in get_args(Accelerator):
        return Finding(
            "unknown-accelerator",
            "error",
            what=f"accelerator={topology.accelerator!r} is not known.",
            why="Batch advice and device peaks depend on the kind of hardware.",
            fix=f"Use one of {', '.join(map(repr, get_args(Accelerator)))}.",
        )
    if topology.num_replicas < 1 or topology.num_workers < 1:
        return Finding(
            "no-replicas",
            "error",
            what=f"num_replicas={topology.num_replicas} and num_workers={topology.num_workers} "
            "leave nobody to train.",
            why="At least one replica on one worker runs the training step.",
            fix="Use num_replicas=1, num_workers=1 or more.",
        )
    if topology.num_replicas % topology.num_workers:
        replicas = -(-topology.num_replicas // topology.num_workers) * topology.num_workers
        return Finding(
            "replicas-not-divisible",
            "error",
            what=f"num_replicas={topology.num_replicas} do not divide over "
            f"num_workers={topology.num_workers}.",
            why="Every worker holds the same number of replicas, or their collectives never meet.",
            fix=f"Use num_replicas={replicas}, or another number of workers.",
            cures=({"num_replicas": replicas},),
        )
    if not 0 <= topology.worker_index < topology.num_workers:
        return Finding(
            "worker-index",
            "error",
            what=f"worker_index={topology.worker_index} is outside the "
            f"{topology.num_workers} workers.",
            why="Workers are counted from 0.",
            fix=f"Use a worker_index from 0 to {topology.num_workers - 1}.",
            cures=({"worker_index": 0},),
        )
    return None
