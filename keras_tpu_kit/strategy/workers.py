"""Several workers that train in step, as TF_CONFIG names them."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.deadline import Deadline
from keras_tpu_kit.strategy.meeting import meet
from keras_tpu_kit.strategy.outcome import Found
from keras_tpu_kit.strategy.reduction import unknown_reduction

# TensorFlow's own connection takes well under a second once all workers are there.
_CONNECTION_SECONDS = 45.0
# What a process does that says why another one ended, if that one left a trace.
_EXPLAIN = "import sys; trace = sys.stdin.read(); trace and sys.stderr.write(trace + sys.argv[1])"


def find_workers(deadline: Deadline, reduction: Any = None) -> Found | None:
    """Returns the strategy of all workers, or `None` where TF_CONFIG names no other.

    Raises:
        HardwareError: If TF_CONFIG cannot be used, or a worker does not come in time.
    """
    cluster = Cluster.from_tf_config(os.environ.get("TF_CONFIG") or "{}")
    if cluster is None or cluster.num_workers == 1:
        return None
    import tensorflow as tf

    options = _communication(reduction)
    gpus = len(tf.config.list_physical_devices("GPU"))
    meet(cluster, deadline)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.addresses)}),
        task_type="worker",
        task_id=cluster.index,
        num_accelerators={"GPU": gpus} if gpus else {},
        rpc_layer="grpc",
    )
    with _ended_if_it_hangs(cluster), _keeping_sigterm():
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
        except RuntimeError as error:
            raise _too_late(error) from error
    _explain_lost_workers(cluster)
    return Found(
        strategy,
        "gpu" if gpus else "cpu",
        f"TF_CONFIG names {cluster.num_workers} workers; this is worker {cluster.index}",
        is_exclusive=True,
        uses_collectives=True,
    )


def lost_worker(error: BaseException, cluster: Cluster | None = None) -> HardwareError | None:
    """Returns what TensorFlow's error means, if it is that another worker has ended.

    Args:
        error: What was raised in training.
        cluster: The workers, by default those of TF_CONFIG.
    """
    import tensorflow as tf

    # What the operation says when the connection breaks, when heartbeats stay away, and when
    # the worker that counts the heartbeats is the one that ended.
    kinds = (
        tf.errors.UnavailableError,
        tf.errors.DeadlineExceededError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.InternalError,
    )
    signs = ("Collective ops is aborted", "heartbeat", "CoordinationService", "recvmsg")
    if not isinstance(error, kinds) or not any(sign in str(error) for sign in signs):
        return None
    cluster = cluster or Cluster.from_tf_config(os.environ.get("TF_CONFIG") or "{}")
    if cluster is None:
        return None
    others = [
        f"worker {index} ({address})"
        for index, address in enumerate(cluster.addresses)
        if index != cluster.index
    ]
    return HardwareError(
        Finding(
            "worker-lost",
            "error",
            what=f"Worker {cluster.index} lost {' or '.join(others)}.",
            why="All workers train in step, so the others cannot go on when one has ended or "
            "cannot be reached.",
            fix="Look at the last lines of the others for the cause, and start all workers again; "
            "with BackupAndRestore they go on from the last epoch.",
        )
    )


def _communication(reduction: Any) -> Any:
    """Returns how workers talk: NCCL between GPUs, or rings."""
    import tensorflow as tf

    implementation = tf.distribute.experimental.CommunicationImplementation
    known = {None: implementation.AUTO, "nccl": implementation.NCCL, "ring": implementation.RING}
    if not isinstance(reduction, str | None) or reduction not in known:
        raise unknown_reduction(reduction, ("nccl", "ring"))
    return tf.distribute.experimental.CommunicationOptions(implementation=known[reduction])


def _too_late(error: RuntimeError) -> HardwareError:
    """Returns the error for workers that are asked for after TensorFlow has started."""
    return HardwareError(
        Finding(
            "workers-too-late",
            "error",
            what=f"TensorFlow cannot join the other workers any more: {error}",
            why="It connects to them when it starts, and something has used it before.",
            fix="Call detect_strategy() before anything else uses TensorFlow, in a new process.",
        )
    )


@contextmanager
def _ended_if_it_hangs(cluster: Cluster) -> Iterator[None]:
    """Ends the process, with a trace and the reason, if TensorFlow waits for ever for a worker.

    A worker that dies after all have met leaves TensorFlow waiting in C++ with Python's lock
    held, so that neither a thread nor a signal handler of Python's could end it or say a word.
    """
    reason = f"\nkeras_tpu_kit: {_not_connected(cluster, _CONNECTION_SECONDS)}\n"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _EXPLAIN, reason],
        stdin=subprocess.PIPE,
        start_new_session=True,  # What ends this process shall not keep it from saying why.
    ) as explainer:
        assert explainer.stdin is not None
        faulthandler.dump_traceback_later(
            _CONNECTION_SECONDS, exit=True, file=explainer.stdin.fileno()
        )
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _not_connected(cluster: Cluster, seconds: float) -> Finding:
    """Returns why a worker ends that TensorFlow could not connect to the others."""
    others = ", ".join(cluster.addresses[: cluster.index] + cluster.addresses[cluster.index + 1 :])
    return Finding(
        "workers-not-connected",
        "error",
        what=f"All workers came, but TensorFlow has not connected worker {cluster.index} with "
        f"{others} within {seconds:g} s.",
        why="One of them has ended since, or cannot be reached, and TensorFlow would wait for it "
        "for ever.",
        fix="Look at the last lines of the others for the cause, and start all workers again.",
    )


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Puts back what SIGTERM did; TensorFlow's preemption notifier makes it do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler or signal.SIG_DFL)


def _explain_lost_workers(cluster: Cluster) -> None:
    """Adds the reason under the trace of a run that ends because another worker did."""
    before = sys.excepthook

    def explain(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        before(kind, error, trace)
        lost = lost_worker(error, cluster)
        if lost is not None:
            sys.stderr.write(f"\nkeras_tpu_kit: {lost}\n")

    sys.excepthook = explain
