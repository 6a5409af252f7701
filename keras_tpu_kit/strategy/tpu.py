"""TPUs: on this machine, by name, or at an address. Nothing here waits beyond its deadline."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from keras_tpu_kit.backend import installed_wheels
from keras_tpu_kit.checks.environment import check_tpu_wheel
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.processes import EXIT_TIMED_OUT, answers, run_limited
from keras_tpu_kit.strategy.deadline import Deadline
from keras_tpu_kit.strategy.environment import (
    TPU_VARIABLES,
    describe_surroundings,
    tpu_chips,
    tpu_in_environment,
)
from keras_tpu_kit.strategy.outcome import Found

if TYPE_CHECKING:
    import tensorflow as tf

_DEFAULT_PORT = 8470
# Connecting waits in C++ with Python's lock held, so only a process of its own can be ended.
_CONNECT = """
import sys, tensorflow as tf
resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
if sys.argv[1] == "local":
    tf.tpu.experimental.initialize_tpu_system(resolver)
else:
    tf.config.experimental_connect_to_cluster(resolver)
kinds = {device.device_type for device in tf.config.list_logical_devices()}
sys.exit(0 if kinds & {"TPU", "TPU_SYSTEM"} else f"devices there: {sorted(kinds)}")
"""


def find_tpu(tpu: str | None, deadline: Deadline) -> Found | Finding:
    """Returns the strategy of a TPU, or why there is none.

    Args:
        tpu: `"local"`, a name, a `grpc://` address, or `None` for the one that a variable
            names or that this machine has.
        deadline: A TPU that is still starting is asked again until then.

    Raises:
        HardwareError: If this process was left waiting for a TPU and can use none any more.
    """
    named = (tpu, f"tpu={tpu!r}") if tpu else tpu_in_environment()
    chips = len(tpu_chips())
    if named is None and chips:
        named = ("local", f"TPU chips on this machine: {chips}")
    if named is None:
        return Finding(
            "tpu-missing",
            "error",
            what="No TPU is named, and this machine has no TPU chip.",
            why=f"A TPU was looked for in {', '.join(TPU_VARIABLES)}, on the PCI bus and in "
            f"/dev/accel* ({describe_surroundings()}).",
            fix="Use a machine (in Colab or Kaggle: a runtime) with a TPU, or name it: "
            'detect_strategy(tpu="my-tpu"), tpu="grpc://10.0.0.2:8470".',
        )
    target, reason = named
    if target == "local":
        fault = _ask_this_machine(chips, deadline)
    else:
        fault = _ask_address(target, deadline)
    return fault or _initialise(target, reason, deadline)


def _ask_this_machine(chips: int, deadline: Deadline) -> Finding | None:
    """Returns why a TPU on this machine cannot be used."""
    if chips:
        return check_tpu_wheel(chips, installed_wheels())
    # No chip shows itself, which in a container need not mean that there is none. Asking may take
    # for ever, and drops every trace of this process, so another one asks.
    return _ask_in_a_process("local", deadline)


def _ask_address(target: str, deadline: Deadline) -> Finding | None:
    """Returns why a TPU at an address, or by name, cannot be reached."""
    addresses = _addresses(target, deadline)
    if isinstance(addresses, Finding):
        return addresses
    for address in addresses:
        host, _, port = address.partition(":")
        number = int(port) if port.isdecimal() else _DEFAULT_PORT
        if not deadline.retry(lambda left: answers(host, number, min(left, 5.0)) or None):  # noqa: B023
            return Finding(
                "tpu-no-answer",
                "error",
                what=f"The TPU {target!r} does not answer at {host}:{number} within "
                f"{deadline.seconds:g} s.",
                why="Nobody accepts a connection there: the TPU is not running, is still starting "
                f"or cannot be reached from this machine ({describe_surroundings()}).",
                fix="See that it is READY (gcloud compute tpus list) and in the same network, or "
                "wait longer: detect_strategy(timeout=300).",
            )
    return _ask_in_a_process(f"grpc://{addresses[0]}", deadline)


def _addresses(target: str, deadline: Deadline) -> list[str] | Finding:
    """Returns the `host:port` of a TPU's hosts, or why its name leads to none."""
    if target.startswith("grpc://"):
        return [part.removeprefix("grpc://") for part in target.split(",")]
    import tensorflow as tf

    def resolve() -> list[str]:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(target)
        return list(resolver.cluster_spec().job_tasks("worker"))

    try:
        return deadline.within(resolve)
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        # TimeoutError and urllib's errors are OSErrors.
        return Finding(
            "tpu-name",
            "error",
            what=f"The TPU named {target!r} cannot be looked up: {error}",
            why="A name is looked up with Google Cloud's metadata server and TPU service, which "
            f"answer inside Google Cloud only ({describe_surroundings()}).",
            fix='On a TPU VM, Colab or Kaggle use tpu="local" (export TPU_NAME=local); elsewhere '
            'give the address: tpu="grpc://10.0.0.2:8470".',
        )


def _ask_in_a_process(target: str, deadline: Deadline) -> Finding | None:
    """Returns why another process, which can be ended when it hangs, cannot connect."""
    code, output = run_limited(
        [sys.executable, "-c", _CONNECT, target],
        timeout=deadline.left,
        env={"TPU_SKIP_MDS_QUERY": "1", "TF_CPP_MIN_LOG_LEVEL": "2"} if target == "local" else {},
    )
    if code == 0:
        return None
    if code == EXIT_TIMED_OUT:
        return _failed(target, f"it did not end within {deadline.seconds:g} s")
    lines = output.strip().splitlines() or ["there was no output"]
    # The line of a traceback that names the error; TensorFlow's errors go on below it.
    errors = [line for line in lines if re.match(r"[\w.]+Error: ", line)]
    return _failed(target, (errors or lines)[-1][:300])


def _initialise(target: str, reason: str, deadline: Deadline) -> Found | Finding:
    """Returns the strategy of a TPU that is there; a second call in a process initialises none."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(target)
    if not _was_initialised(resolver, target):
        fault = deadline.retry(lambda left: _initialise_once(resolver, target, deadline), pause=2.0)
        if isinstance(fault, Finding):
            return fault
        if fault is None:
            return _failed(target, "it is still starting")
    return Found(tf.distribute.TPUStrategy(resolver), "tpu", reason, is_exclusive=True)


def _initialise_once(
    resolver: tf.distribute.cluster_resolver.TPUClusterResolver, target: str, deadline: Deadline
) -> Finding | bool | None:
    """Returns `True` if the TPU is ready, `None` if it may be soon, or why it never will be."""
    import tensorflow as tf

    def connect() -> None:
        if target != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)

    try:
        deadline.within(connect)
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.FailedPreconditionError):
        return None
    except tf.errors.OpError as error:
        return _failed(target, error.message.splitlines()[0][:300])
    except TimeoutError as error:
        finding = _failed(target, f"it did not end within {deadline.seconds:g} s")
        raise HardwareError(finding) from error
    return True


def _was_initialised(resolver: Any, target: str) -> bool:
    """Returns whether this process has initialised the TPU before, outside the kit.

    Doing it again would destroy every variable on it, so its topology is taken from there.
    """
    from tensorflow.python.tpu import tpu_strategy_util

    topology = tpu_strategy_util._INITIALIZED_TPU_SYSTEMS.get(target)
    if topology is None:
        return False
    resolver.set_tpu_topology(topology.serialized())
    return True


def _failed(target: str, reason: str) -> Finding:
    """Returns that a TPU was reached, or should have been, and cannot be used."""
    return Finding(
        "tpu-failed",
        "error",
        what=f"The TPU {target!r} cannot be initialised: {reason}.",
        why="Either no TPU is behind it, another process holds it, or TensorFlow has no TPU "
        f"kernels ({describe_surroundings()}).",
        fix="Restart the runtime; end other processes that use the TPU; and have only "
        "tensorflow-tpu installed (keras-tpu-kit doctor tells).",
    )
