"""Steps and seconds, as rates; peaks of known chips; MFU; scaling efficiency."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peaks of one accelerator chip, from its data sheet.

    Args:
        name: As `Topology.chip` spells it.
        tflops: Dense matrix peak in 1e12 operations per second, bfloat16 (float16 on a T4 and
            V100).
        memory_gb: Device memory in GB.
        bandwidth_gbs: Memory bandwidth in GB per second, or `None` where none is listed here.
        cores: Replicas that one chip holds: 2 on TPU v2 and v3, else 1.

    Example:

    >>> CHIPS["TPU v3"].flops_per_replica
    61500000000000.0
    """

    name: str
    tflops: float
    memory_gb: float
    bandwidth_gbs: float | None = None
    cores: int = 1

    @property
    def flops_per_replica(self) -> float:
        """Peak operations per second that one replica can use."""
        return self.tflops * 1e12 / self.cores


# Source: https://cloud.google.com/tpu/docs/system-architecture-tpu-vm and NVIDIA's data sheets
# (dense tensor-core peaks). v4, v5p and v6e have one logical device a chip, whatever their
# TensorCores. Add your own: CHIPS["MI300X"] = Chip("MI300X", 1307, 192).
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("TPU v2", 46, 16, 716, cores=2),
        Chip("TPU v3", 123, 32, 900, cores=2),
        Chip("TPU v4", 275, 32, 1200),
        Chip("TPU v5e", 197, 16, 819),
        Chip("TPU v5p", 459, 95, 2765),
        Chip("TPU v6e", 918, 32, 1638),
        Chip("T4", 65, 16),
        Chip("V100", 125, 16),
        Chip("A100", 312, 40),
        Chip("L4", 121, 24),
        Chip("H100", 989, 80),
        Chip("H200", 989, 141),
        Chip("RTX 4090", 165, 24),
    )
}

# Speed-up that synchronous training reached, by replicas. Source: TensorFlow's guide and
# published ResNet-50 runs on 2 to 8 GPUs (93.5 % to 99 % at 8).
PUBLISHED_SPEEDUP = {2: 2.0, 4: 3.8, 8: 7.3}

# Shares of the step spent waiting for input. Source: TensorFlow profiler's thresholds,
# https://www.tensorflow.org/guide/profiler#input-pipeline_analyzer.
INPUT_MODERATE, INPUT_BOUND = 0.05, 0.20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Throughput:
    """What a run of executions achieved; compilation is kept apart.

    Args:
        num_replicas: Replicas in sync.
        rows: Rows over all replicas in the steady executions, or `None` where nobody counted
            them.
        steps: Steps in the steady executions.
        execution_seconds: Seconds of each steady execution.
        first_execution_seconds: Seconds of the first execution, which traces and compiles, or
            `None` if it was not seen.
        input_wait_seconds: Seconds in which the steady executions waited for input, or `None`
            where nobody measured it.
        flops_per_step: Operations of one step over all replicas, or `None`.
        peak_flops_per_replica: Peak of one replica in operations per second, or `None`.

    Example:

    >>> run = Throughput(num_replicas=2, rows=4_000, steps=40, execution_seconds=(0.5, 0.5))
    >>> run.samples_per_second, run.samples_per_second_per_replica, run.step_seconds
    (4000.0, 2000.0, 0.025)
    """

    num_replicas: int
    rows: int | None
    steps: int
    execution_seconds: tuple[float, ...]
    first_execution_seconds: float | None = None
    input_wait_seconds: float | None = None
    flops_per_step: float | None = None
    peak_flops_per_replica: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds of all steady executions."""
        return float(sum(self.execution_seconds))

    @property
    def samples_per_second(self) -> float:
        """Rows per second over all replicas; not a number where nothing was measured."""
        return self.rows / self.seconds if self.rows is not None and self.seconds else math.nan

    @property
    def samples_per_second_per_replica(self) -> float:
        """Rows per second on one replica."""
        return self.samples_per_second / self.num_replicas

    @property
    def step_seconds(self) -> float:
        """Mean seconds of one step; not a number before the first steady execution."""
        return self.seconds / self.steps if self.steps else math.nan

    def execution_percentile(self, percent: float) -> float:
        """Returns the seconds within which `percent` % of the executions ended."""
        if not self.execution_seconds:
            return math.nan
        seconds = sorted(self.execution_seconds)
        place = (len(seconds) - 1) * percent / 100
        below, above = seconds[math.floor(place)], seconds[math.ceil(place)]
        return below + (above - below) * (place - math.floor(place))

    @property
    def input_wait_share(self) -> float | None:
        """Share of the time, 0 to 1, that waited for input, or `None` where unknown."""
        if self.input_wait_seconds is None or not self.seconds:
            return None
        return min(1.0, self.input_wait_seconds / self.seconds)

    @property
    def mfu(self) -> float | None:
        """Model flops utilisation, 0 to 1: operations done over those the chips could do.

        `None` where the chip's peak or the step's operations are unknown; never a guess.
        Source: Chowdhery et al. 2022, https://arxiv.org/abs/2204.02311, section 4.1.
        """
        if not self.flops_per_step or not self.peak_flops_per_replica or not self.seconds:
            return None
        available = self.peak_flops_per_replica * self.num_replicas * self.step_seconds
        return self.flops_per_step / available

    def scaling_efficiency(self, one_replica_rate: float) -> float:
        """Returns this rate over `num_replicas` times a one-replica rate, 1.0 being perfect.

        Args:
            one_replica_rate: Samples per second of one replica training alone.

        Example:

        >>> Throughput(num_replicas=4, rows=380, steps=1,
        ...            execution_seconds=(1.0,)).scaling_efficiency(100)
        0.95
        """
        return self.samples_per_second / (self.num_replicas * one_replica_rate)

    def to_dict(self) -> dict[str, Any]:
        """Returns the stored and the derived figures as a dict of JSON types.

        What was not measured is `None`, since JSON has no word for "not a number".
        """
        figures: dict[str, Any] = {
            "num_replicas": self.num_replicas,
            "rows": self.rows,
            "steps": self.steps,
            "executions": len(self.execution_seconds),
            "seconds": self.seconds,
            "samples_per_second": self.samples_per_second,
            "samples_per_second_per_replica": self.samples_per_second_per_replica,
            "step_seconds": self.step_seconds,
            "execution_seconds_p50": self.execution_percentile(50),
            "execution_seconds_p95": self.execution_percentile(95),
            "first_execution_seconds": self.first_execution_seconds,
            "input_wait_share": self.input_wait_share,
            "mfu": self.mfu,
        }
        return {name: None if _is_nan(value) else value for name, value in figures.items()}


def total(runs: Sequence[Throughput]) -> Throughput:
    """Returns several stretches of one training, such as its epochs, as one.

    Args:
        runs: At least one; what only some of them measured is `None` in the sum.

    Example:

    >>> epoch = Throughput(num_replicas=2, rows=100, steps=4, execution_seconds=(0.5,))
    >>> total([epoch, epoch]).rows
    200
    """
    rows = [run.rows for run in runs if run.rows is not None]
    waits = [run.input_wait_seconds for run in runs if run.input_wait_seconds is not None]
    firsts = [r.first_execution_seconds for r in runs if r.first_execution_seconds is not None]
    return dataclasses.replace(
        runs[-1],
        rows=sum(rows) if len(rows) == len(runs) else None,
        steps=sum(run.steps for run in runs),
        execution_seconds=tuple(second for run in runs for second in run.execution_seconds),
        first_execution_seconds=firsts[0] if firsts else None,
        input_wait_seconds=sum(waits) if len(waits) == len(runs) else None,
    )


def describe_input_wait(share: float | None) -> str:
    """Returns a share of time that waited for input, in words.

    Example:

    >>> describe_input_wait(0.3), describe_input_wait(None)
    ('30 % (input-bound)', 'unknown')
    """
    if share is None:
        return "unknown"
    word = "fine" if share < INPUT_MODERATE else "moderate"
    if share > INPUT_BOUND:
        word = "input-bound"
    return f"{share:.0%} ({word})".replace("%", " %")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
