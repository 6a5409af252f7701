"""Makes sure that all workers are there, before TensorFlow waits for them without a limit.

Worker 0 listens on its own port until every other has said which worker it is, and then tells
all to go on. TensorFlow's server takes the same port afterwards, so no other need be open.
"""

from __future__ import annotations

import contextlib
import socket

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import Finding, HardwareError
from keras_tpu_kit.strategy.deadline import Deadline

_GREETING = "keras_tpu_kit worker"
_GO = "go"
# What a worker may take between being connected and having said its number.
_SPEECH_SECONDS = 5.0


def meet(cluster: Cluster, deadline: Deadline) -> None:
    """Returns when every worker of the cluster is here.

    Raises:
        HardwareError: At the deadline, naming the workers that did not come.
    """
    if cluster.index == 0:
        _gather(cluster, deadline)
    else:
        _report(cluster, deadline)


def _gather(cluster: Cluster, deadline: Deadline) -> None:
    """Waits, as worker 0, for all the others, and tells them to go on."""
    port = int(cluster.addresses[0].rpartition(":")[2])
    expected = {_greeting(cluster, index): index for index in range(1, cluster.num_workers)}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_listen(port, deadline))
        here: dict[int, socket.socket] = {}
        while len(here) < len(expected) and deadline.left:
            server.settimeout(max(deadline.left, 0.01))
            with contextlib.suppress(OSError):
                connection = stack.enter_context(server.accept()[0])
                connection.settimeout(min(_SPEECH_SECONDS, max(deadline.left, 0.01)))
                said = connection.makefile().readline().strip()
                # A worker that was restarted in the meantime takes its own place again.
                if said in expected:
                    here[expected[said]] = connection
        missing = sorted(set(expected.values()) - set(here))
        answer = f"missing {','.join(map(str, missing))}" if missing else _GO
        for connection in here.values():
            with contextlib.suppress(OSError):
                connection.sendall(f"{answer}\n".encode())
    if missing:
        raise _absent(cluster, missing, deadline)


def _report(cluster: Cluster, deadline: Deadline) -> None:
    """Tells worker 0, until the deadline, that this one is here, and waits for its answer."""
    answer = deadline.retry(lambda left: _ask(cluster, left), pause=0.2)
    if answer == _GO:
        return
    if answer and answer.startswith("missing "):
        missing = [int(index) for index in answer.removeprefix("missing ").split(",")]
        raise _absent(cluster, missing, deadline)
    raise _absent(cluster, [0], deadline)


def _ask(cluster: Cluster, left: float) -> str | None:
    """Returns worker 0's answer, or `None` if nobody, or somebody else, answers at its address."""
    host, _, port = cluster.addresses[0].rpartition(":")
    left = max(left, 0.01)
    try:
        with socket.create_connection((host, int(port)), timeout=left) as connection:
            connection.sendall(f"{_greeting(cluster, cluster.index)}\n".encode())
            # Worker 0 answers at its own deadline, which may be a little later than this one's.
            connection.settimeout(left + _SPEECH_SECONDS)
            answer = connection.makefile(errors="replace").readline().strip()
    except OSError:
        return None
    return answer if answer == _GO or answer.startswith("missing ") else None


def _greeting(cluster: Cluster, index: int) -> str:
    """Returns what a worker says; workers of another cluster say something else."""
    return f"{_GREETING} {index} of {','.join(cluster.addresses)}"


def _listen(port: int, deadline: Deadline) -> socket.socket:
    """Returns a socket that listens on a port as soon as that is free."""

    def attempt(left: float) -> socket.socket | None:
        try:
            return socket.create_server(("", port), backlog=128)
        except OSError:
            return None

    server = deadline.retry(attempt, pause=0.2)
    if server is None:
        raise HardwareError(
            Finding(
                "worker-port-taken",
                "error",
                what=f"Port {port} is not free on this machine.",
                why="This worker is found at that port by the others; perhaps an earlier run "
                "still holds it.",
                fix=f"End the other program (ss -ltnp 'sport = :{port}' names it), or use another "
                "port for every worker.",
            )
        )
    return server


def _absent(cluster: Cluster, missing: list[int], deadline: Deadline) -> HardwareError:
    """Returns the error that names the workers that did not come."""
    names = ", ".join(f"worker {index} ({cluster.addresses[index]})" for index in missing)
    verb = "does" if len(missing) == 1 else "do"
    return HardwareError(
        Finding(
            "worker-absent",
            "error",
            what=f"{names} {verb} not answer within {deadline.seconds:g} s.",
            why=f"All {cluster.num_workers} workers train in step, so none can start before all "
            "are there.",
            fix="Start every worker with the same list of addresses, look at the output of those "
            "named above, and let the workers reach each other's ports; "
            "detect_strategy(timeout=600) waits longer.",
        )
    )
