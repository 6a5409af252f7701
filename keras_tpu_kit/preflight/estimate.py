"""How fast a step could be: a roofline, from the compiler's counts and the chip's peaks."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_tpu_kit.tpu_compiler import CompiledStep
from keras_tpu_kit.tpu_types import TpuType

ASSUMPTIONS = (
    "An estimate, not a measurement: the slower of computing at the chip's bfloat16 peak and "
    "moving the bytes that the compiler counts at its memory's peak. Real steps are slower.",
    "One replica's step: the all-reduce of the gradients and waiting for input are left out.",
    "The compiler counts bytes that stay in on-chip memory as well, and a loop's body once.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A roofline estimate of one step.

    Args:
        rows: Rows of one step on one replica.
        num_replicas: Replicas of the slice.
        flops: Operations of one step on one replica.
        bytes_accessed: Bytes that it moves.
        peak_flops: Peak operations per second of one replica.
        peak_bandwidth: Peak bytes per second of one replica's memory.
        gradient_bytes: Bytes that every replica has to reduce with the others each step.
        has_loops: Whether loops make the operations an undercount.

    Example:

    >>> estimate = Estimate(rows=128, num_replicas=8, flops=2e12, bytes_accessed=1e9,
    ...     peak_flops=2e13, peak_bandwidth=1e11, gradient_bytes=0, has_loops=False)
    >>> estimate.step_seconds, estimate.bound, estimate.samples_per_second, estimate.mfu
    (0.1, 'compute', 10240.0, 1.0)
    >>> estimate.intensity, estimate.ridge
    (2000.0, 200.0)
    """

    rows: int
    num_replicas: int
    flops: float
    bytes_accessed: float
    peak_flops: float
    peak_bandwidth: float
    gradient_bytes: int
    has_loops: bool

    @property
    def compute_seconds(self) -> float:
        """Seconds of the operations at the chip's peak."""
        return self.flops / self.peak_flops

    @property
    def memory_seconds(self) -> float:
        """Seconds of the traffic at the memory's peak."""
        return self.bytes_accessed / self.peak_bandwidth

    @property
    def step_seconds(self) -> float:
        """The slower of the two."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def bound(self) -> str:
        """`"compute"` or `"memory"`: what a step waits for."""
        return "compute" if self.compute_seconds >= self.memory_seconds else "memory"

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.flops / self.bytes_accessed

    @property
    def ridge(self) -> float:
        """Operations per byte from which on the chip, not its memory, sets the pace."""
        return self.peak_flops / self.peak_bandwidth

    @property
    def samples_per_second_per_replica(self) -> float:
        """Rows per second on one replica."""
        return self.rows / self.step_seconds

    @property
    def samples_per_second(self) -> float:
        """Rows per second on all replicas of the slice."""
        return self.samples_per_second_per_replica * self.num_replicas

    @property
    def mfu(self) -> float:
        """Operations done over those the chip could do in that time, 0 to 1."""
        return self.compute_seconds / self.step_seconds

    def to_dict(self) -> dict[str, Any]:
        """Returns facts and figures as a dict of JSON types."""
        names = (
            "compute_seconds", "memory_seconds", "step_seconds", "bound", "intensity", "ridge",
            "samples_per_second_per_replica", "samples_per_second", "mfu",
        )  # fmt: skip
        figures = {name: getattr(self, name) for name in names}
        return {**dataclasses.asdict(self), **figures, "assumptions": list(ASSUMPTIONS)}


def roofline(step: CompiledStep, tpu: TpuType, rows: int, gradient_bytes: int) -> Estimate | None:
    """Returns the estimate for a compiled step, or `None` where the compiler counted nothing.

    Args:
        step: What the compiler said.
        tpu: The slice.
        rows: Rows of one step on one replica.
        gradient_bytes: Bytes of all gradients.
    """
    bandwidth = tpu.chip.bandwidth_gbs
    if not step.flops or not step.bytes_accessed or bandwidth is None:
        return None
    return Estimate(
        rows=rows,
        num_replicas=tpu.num_replicas,
        flops=step.flops,
        bytes_accessed=step.bytes_accessed,
        peak_flops=tpu.chip.flops_per_replica,
        peak_bandwidth=bandwidth * 1e9 / tpu.chip.cores,
        gradient_bytes=gradient_bytes,
        has_loops=step.program.loop_products > 0,
    )
