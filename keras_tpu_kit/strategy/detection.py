"""Finds the best hardware that answers, and returns the strategy that trains on it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_tpu_kit.backend import require_tensorflow
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.cpu import find_cpu, simulate_replicas
from keras_tpu_kit.strategy.deadline import Deadline
from keras_tpu_kit.strategy.description import describe_strategy
from keras_tpu_kit.strategy.environment import spare_the_metadata_query
from keras_tpu_kit.strategy.local_devices import find_devices, find_gpus
from keras_tpu_kit.strategy.outcome import Found, Request
from keras_tpu_kit.strategy.tpu import find_tpu
from keras_tpu_kit.strategy.workers import find_workers

if TYPE_CHECKING:
    import tensorflow as tf

_HARDWARE_SECONDS = 30.0
# Machines of a cluster start minutes apart.
_WORKER_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class _Served:
    """A strategy that was handed out, what was asked for, and what was said about it."""

    request: Request
    found: Found
    line: str


# All that this process has handed out: hardware is per process, and so is this list.
_served: list[_Served] = []


def detect_strategy(
    accelerator: str = "auto",
    *,
    tpu: str | None = None,
    devices: Sequence[str] | None = None,
    simulate: int | None = None,
    reduction: Any = None,
    timeout: float | None = None,
    log: Callable[[str], None] | None = None,
) -> tf.distribute.Strategy:
    """Returns the strategy that trains on the best hardware that answers.

    `"auto"` takes the workers that TF_CONFIG names; else a TPU, in Colab, in Kaggle, on a Cloud
    TPU VM or where a variable names one; else all GPUs; else the CPU. It says in one line what
    it took, and why not the others. A second call returns the same strategy. The strategy is
    TensorFlow's own and works without the rest of the kit.

    Args:
        accelerator: `"auto"`, or `"tpu"`, `"gpu"` or `"cpu"` for that or an error.
        tpu: `"local"`, the name of a Cloud TPU, or its address (`"grpc://10.0.0.2:8470"`).
        devices: The devices to use, such as `["GPU:0", "GPU:2"]`.
        simulate: Number of logical CPU devices that stand in for accelerators. It comes before
            anything else that uses TensorFlow.
        reduction: How gradients are summed: `"nccl"`, `"hierarchical"`, `"one_device"`, a
            `tf.distribute.CrossDeviceOps`; between workers `"nccl"` or `"ring"`. By default
            TensorFlow's choice on accelerators, and `"one_device"` on simulated ones.
        timeout: Seconds to wait for hardware that is still starting, by default 30, and for
            other workers, by default 300.
        log: Receives the line; by default the logger `"keras_tpu_kit"`, which writes to
            standard error unless logging is set up.

    Raises:
        HardwareError: If what is asked for is not here or does not answer in time, with what
            was looked for, what was found, and what to do.
        BackendError: If TensorFlow is not installed, or Keras runs on another backend.

    Example:

    >>> strategy = detect_strategy("cpu")
    >>> detect_strategy("cpu") is strategy
    True
    """
    request = Request(accelerator, tpu, devices, simulate, reduction)
    spare_the_metadata_query()
    require_tensorflow()
    before = _serve_again(request)
    if before is not None:
        return before.found.strategy
    _refuse_beside(lambda other: other.is_exclusive)
    found, refused = _find(request, timeout)
    _refuse_beside(lambda other: other.uses_collectives and found.uses_collectives)
    line = _in_one_line(found, refused)
    _served.append(_Served(request, found, line))
    (log or _log)(line)
    return found.strategy


def explain_strategy(strategy: tf.distribute.Strategy) -> str:
    """Returns in one line what was taken and why not the others.

    Args:
        strategy: One that `detect_strategy` returned, or any other.
    """
    for served in _served:
        if served.found.strategy is strategy:
            return served.line
    return f"Training on {describe_strategy(strategy)} (made without detect_strategy)."


def _find(request: Request, timeout: float | None) -> tuple[Found, list[Finding]]:
    """Returns what answers, and why what would have been better does not."""
    deadline = Deadline(_HARDWARE_SECONDS if timeout is None else timeout)
    if request.simulate is not None:
        return simulate_replicas(request.simulate, request.reduction), []
    if request.devices is not None:
        return find_devices(tuple(request.devices), request.reduction), []
    if request.tpu is None and request.accelerator != "tpu":
        workers = find_workers(
            Deadline(_WORKER_SECONDS if timeout is None else timeout), request.reduction
        )
        if workers is not None:
            return workers, []
    searches: dict[str, Callable[[], Found | Finding]] = {
        "tpu": lambda: find_tpu(request.tpu, deadline),
        "gpu": lambda: find_gpus(request.reduction),
        "cpu": find_cpu,
    }
    wanted = "tpu" if request.tpu else request.accelerator
    refused: list[Finding] = []
    for kind, search in searches.items():
        if wanted in ("auto", kind):
            found = search()
            if isinstance(found, Found):
                return found, refused
            refused.append(found)
    raise HardwareError(dataclasses.replace(refused[0], severity="error"))


def _serve_again(request: Request) -> _Served | None:
    """Returns what an earlier call was given, if that is what is asked for now."""
    for served in reversed(_served):
        if served.request == request or request.is_open:
            return served
        if request == Request(served.found.accelerator):
            return served
    return None


def _refuse_beside(is_disturbed: Callable[[Found], bool]) -> None:
    """Raises where a new strategy would disturb one that this process has handed out."""
    for served in _served:
        if is_disturbed(served.found):
            raise HardwareError(
                Finding(
                    "strategy-exists",
                    "error",
                    what=f"This process trains already. {served.line}",
                    why="A second strategy would meet the first one's collective operations, or "
                    "initialise its TPU again and destroy the variables on it.",
                    fix="Use the first one, detect_strategy(); or restart the runtime and ask for "
                    "the other hardware first.",
                )
            )


def _in_one_line(found: Found, refused: list[Finding]) -> str:
    """Returns what was taken and why not the others."""
    why_not = "".join(f" {finding.what}" for finding in refused)
    return f"Training on {describe_strategy(found.strategy)} ({found.reason}).{why_not}"


def _log(line: str) -> None:
    """Writes a line to the kit's logger, and makes sure that a user who set up none sees it."""
    logger = logging.getLogger("keras_tpu_kit")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.info(line)
