"""Workers wait for each other, and say who did not come."""

import socket
import threading

import pytest

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import HardwareError
from keras_tpu_kit.processes import free_ports
from keras_tpu_kit.strategy.deadline import Deadline
from keras_tpu_kit.strategy.meeting import meet


def addresses(count):
    return tuple(f"127.0.0.1:{port}" for port in free_ports(count))


def arrive(where, index, seconds, results):
    """Runs one worker's part in a thread; its error, or `None`, goes to `results`."""

    def run():
        try:
            meet(Cluster(where, index), Deadline(seconds))
            results[index] = None
        except HardwareError as error:
            results[index] = error.finding

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def meeting(where, indices, seconds):
    results = {}
    threads = [arrive(where, index, seconds, results) for index in indices]
    for thread in threads:
        thread.join(60)
    return results


def test_all_come_in_any_order():
    where = addresses(4)
    assert meeting(where, [3, 1, 0, 2], 30) == dict.fromkeys(range(4))
    # The port is free again for TensorFlow's own server.
    socket.create_server(("", int(where[0].rpartition(":")[2]))).close()


def test_everybody_learns_who_is_missing():
    where = addresses(4)
    results = meeting(where, [0, 2], 1.5)
    for finding in results.values():
        assert finding.code == "worker-absent"
        assert f"worker 1 ({where[1]}), worker 3 ({where[3]}) do not answer" in finding.what
    assert set(results) == {0, 2}


def test_without_worker_0_the_others_name_it():
    where = addresses(3)
    results = meeting(where, [1, 2], 0.5)
    assert f"worker 0 ({where[0]}) does not answer within 0.5 s" in results[1].what


def test_somebody_else_at_the_address_is_not_taken_for_worker_0():
    where = addresses(2)
    with socket.create_server(("127.0.0.1", int(where[0].rpartition(":")[2]))) as server:

        def answer_nonsense():
            with pytest.raises(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        thread = threading.Thread(target=answer_nonsense)
        thread.start()
        assert meeting(where, [1], 0.5)[1].code == "worker-absent"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(30)


def test_strangers_and_workers_of_another_cluster_do_not_count():
    where = addresses(2)
    results = {}
    waiting = arrive(where, 0, 2, results)
    host, _, port = where[0].rpartition(":")
    for said in (b"GET / HTTP/1.1\r\n", b"", b"keras_tpu_kit worker 1 of other:1,cluster:2\n"):
        Deadline(30).retry(lambda left, said=said: _say(host, int(port), said), pause=0.05)
    waiting.join(60)
    assert results[0].code == "worker-absent"


def _say(host, port, said):
    try:
        with socket.create_connection((host, port), timeout=5) as connection:
            connection.sendall(said)
            return True
    except OSError:
        return None


def test_a_taken_port_is_named():
    where = addresses(2)
    port = int(where[0].rpartition(":")[2])
    with socket.create_server(("", port)):
        assert meeting(where, [0], 0.3)[0].code == "worker-port-taken"
