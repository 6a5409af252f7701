"""What was asked for, and what a search for hardware ends with."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.topology import Accelerator

if TYPE_CHECKING:
    import tensorflow as tf

Wanted = Literal["auto", "tpu", "gpu", "cpu"]


@dataclasses.dataclass(frozen=True)
class Request:
    """What `detect_strategy` was asked for.

    Args:
        accelerator: `"auto"`, or the only kind that is wanted.
        tpu: The TPU's name or address, `"local"`, or `None`.
        devices: Names of the devices to use, or `None` for all.
        simulate: Number of logical CPU replicas, or `None`.
        reduction: How gradients are summed, or `None` for the best.

    Raises:
        HardwareError: If the wishes contradict each other.
    """

    accelerator: str = "auto"
    tpu: str | None = None
    devices: Sequence[str] | None = None
    simulate: int | None = None
    reduction: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.devices, str) or not all(
            isinstance(device, str) for device in self.devices or ()
        ):
            raise _contradiction(
                f"devices={self.devices!r} is no list of names.",
                'Use a list, such as devices=["GPU:0", "GPU:1"].',
            )
        if self.devices is not None:
            object.__setattr__(self, "devices", tuple(self.devices))
        if self.accelerator not in get_args(Wanted):
            raise _contradiction(
                f"accelerator={self.accelerator!r} is not known.",
                f"Use one of {', '.join(map(repr, get_args(Wanted)))}.",
            )
        if self.simulate is not None and not (
            isinstance(self.simulate, numbers.Integral) and self.simulate >= 1
        ):
            raise _contradiction(
                f"simulate={self.simulate!r} is no number of replicas.", "Use simulate=2 or more."
            )
        wishes = {"tpu": self.tpu, "devices": self.devices, "simulate": self.simulate}
        given = [f"{name}={value!r}" for name, value in wishes.items() if value is not None]
        if len(given) > 1:
            raise _contradiction(
                f"{' and '.join(given)} name different hardware.", f"Use {given[0]} alone."
            )
        implied = "tpu" if self.tpu else "cpu" if self.simulate else None
        if implied and self.accelerator not in ("auto", implied):
            raise _contradiction(
                f"{given[0]} does not go with accelerator={self.accelerator!r}.",
                f"Use {given[0]} alone.",
            )

    @property
    def is_open(self) -> bool:
        """Whether whatever is here will do."""
        return self == Request()


@dataclasses.dataclass(frozen=True)
class Found:
    """A strategy that answers.

    Args:
        strategy: The strategy.
        accelerator: What it trains on.
        reason: Why it was taken, in a few words.
        is_exclusive: Whether no other strategy can come after it in one process: a TPU or a
            cluster of workers.
        uses_collectives: Whether it sums gradients by collective operations, of which a second
            strategy in one process would disturb the first.
    """

    strategy: tf.distribute.Strategy
    accelerator: Accelerator
    reason: str
    is_exclusive: bool = False
    uses_collectives: bool = False


def _contradiction(what: str, fix: str) -> HardwareError:
    return HardwareError(
        Finding(
            "hardware-request",
            "error",
            what=what,
            why="detect_strategy looks for one kind of hardware at a time.",
            fix=fix,
        )
    )
