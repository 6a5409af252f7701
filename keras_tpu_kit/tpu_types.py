"""TPU slices by the names that people use."""

from __future__ import annotations

import dataclasses
import re

from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.throughput import CHIPS, Chip
from keras_tpu_kit.topology import Topology


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Generation:
    """How one generation of TPUs is named and cut.

    Args:
        chip: Name in `throughput.CHIPS`.
        spellings: What stands before the dash; the first is what Cloud TPU calls it.
        counts_cores: Whether the number behind the dash counts TensorCores, not chips.
        sizes: The numbers behind the dash.
        compiler_topology: The smallest host that the compiler knows; one replica's program is
            the same in every slice.
        compiler_config: The compiler's name for cores that work as one device, or `None`.
    """

    chip: str
    spellings: tuple[str, ...]
    counts_cores: bool
    sizes: tuple[int, ...]
    compiler_topology: str
    compiler_config: str | None = None


# Source: https://cloud.google.com/tpu/docs/supported-tpu-configurations and
# https://cloud.google.com/tpu/docs/system-architecture-tpu-vm; the names that the compiler
# answers to were tried with libtpu 0.0.52.
_GENERATIONS = (
    _Generation(
        chip="TPU v2",
        spellings=("v2",),
        counts_cores=True,
        sizes=(8, 32, 128, 256, 512),
        compiler_topology="v2:2x2",
    ),
    _Generation(
        chip="TPU v3",
        spellings=("v3",),
        counts_cores=True,
        sizes=(8, 32, 64, 128, 256, 512, 1024, 2048),
        compiler_topology="v3:2x2x1",
    ),
    _Generation(
        chip="TPU v4",
        spellings=("v4",),
        counts_cores=True,
        sizes=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
        compiler_topology="v4:2x2x1",
        compiler_config="megacore",
    ),
    _Generation(
        chip="TPU v5e",
        spellings=("v5litepod", "v5e", "v5lite"),
        counts_cores=False,
        sizes=(1, 4, 8, 16, 32, 64, 128, 256),
        compiler_topology="v5e:2x4",
    ),
    _Generation(
        chip="TPU v5p",
        spellings=("v5p",),
        counts_cores=True,
        sizes=(8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
        compiler_topology="v5p:2x2x1",
    ),
    _Generation(
        chip="TPU v6e",
        spellings=("v6e",),
        counts_cores=False,
        sizes=(1, 4, 8, 16, 32, 64, 128, 256),
        compiler_topology="v6e:2x4",
    ),
)

# What `--tpu all` compares: the smallest whole host of each generation.
COMPARED = ("v2-8", "v3-8", "v4-8", "v5e-8", "v5p-8", "v6e-8")

_CORES_PER_CHIP = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuType:
    """A TPU slice: its chips, and the replicas that train on it.

    Args:
        name: As it was asked for, such as `"v3-8"`.
        chip_name: Name in `throughput.CHIPS`.
        num_chips: Chips in the slice.
        num_replicas: Replicas that `TPUStrategy` makes of it. On v2 and v3 each core is one;
            from v4 on each chip.
        compiler_topology: Topology that the TPU compiler is asked for.
        compiler_config: Chip configuration that it is asked for, or `None` for its default.

    Example:

    >>> tpu_type("v3-8").num_chips, tpu_type("v3-8").num_replicas
    (4, 8)
    >>> tpu_type("v4-8").num_chips, tpu_type("v4-8").num_replicas
    (4, 4)
    """

    name: str
    chip_name: str
    num_chips: int
    num_replicas: int
    compiler_topology: str
    compiler_config: str | None

    @property
    def chip(self) -> Chip:
        """Peaks of one chip."""
        return CHIPS[self.chip_name]

    @property
    def topology(self) -> Topology:
        """The replicas of the slice, as a value."""
        return Topology(accelerator="tpu", num_replicas=self.num_replicas, chip=self.chip_name)


def tpu_type(name: str) -> TpuType:
    """Returns the TPU slice of a name such as `"v2-8"`, `"v5litepod-1"` or `"v6e-8"`.

    Raises:
        HardwareError: If there is no such slice; the message lists those there are.

    Example:

    >>> tpu_type("v5e-8") == dataclasses.replace(tpu_type("v5litepod-8"), name="v5e-8")
    True
    """
    match = re.fullmatch(r"\s*(v\d+[a-z]*)-(\d+)\s*", name.lower())
    spelling, size = (match[1], int(match[2])) if match else ("", 0)
    for generation in _GENERATIONS:
        if spelling in generation.spellings and size in generation.sizes:
            chips = size // _CORES_PER_CHIP if generation.counts_cores else size
            return TpuType(
                name=name.strip(),
                chip_name=generation.chip,
                num_chips=chips,
                num_replicas=chips * CHIPS[generation.chip].cores,
                compiler_topology=generation.compiler_topology,
                compiler_config=generation.compiler_config,
            )
    raise HardwareError(unknown_tpu(name))


def unknown_tpu(name: str) -> Finding:
    """Returns the finding for a TPU type that does not exist, which lists those that do.

    Example:

    >>> print(unknown_tpu("v9-8").what)
    There is no TPU type 'v9-8'.
    """
    known = "; ".join(
        f"{', '.join(f'{generation.spellings[0]}-{size}' for size in generation.sizes)}"
        for generation in _GENERATIONS
    )
    return Finding(
        "unknown-tpu-type",
        "error",
        what=f"There is no TPU type {name!r}.",
        why="The generation stands before the dash and the number of cores (v2, v3, v4, v5p) or "
        "chips (v5e, v6e) behind it.",
        fix=f"Use one of: {known} (v5e-8 is another name of v5litepod-8).",
    )
