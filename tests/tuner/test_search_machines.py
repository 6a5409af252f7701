"""A search over several machines, played on this one by addresses, names and network namespaces."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest

from keras_tpu_kit.processes import free_ports
from tests.tuner import searched
from tests.tuner.commands import crashes, ended, epochs, searching, trials

pytestmark = pytest.mark.slow

TOKEN = {"KERAS_TPU_KIT_TOKEN": "0123456789abcdef"}
# The second machine of a job starts when the first is still importing TensorFlow.
PATIENT = ("--workers", "1", "--wait-for-chief", "120")
TWO = {"SEARCHED_TRIALS": 2, **TOKEN}


def workers(directory: pathlib.Path) -> set[str]:
    """Returns the names of those that trained an epoch."""
    return {each["by"] for each in epochs(directory)}


def assert_done(directory: pathlib.Path, count: int) -> None:
    found = trials(directory)
    assert {status for _, status, _ in found.values()} == {"COMPLETED"}
    assert ended(directory) == dict.fromkeys(map(str, range(count)), 1)


def slurm(task: int) -> dict[str, str]:
    """Returns what `srun` tells a task of a job with one task on each of two nodes."""
    return {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_PROCID": str(task),
        "SLURM_NODEID": str(task),
        "SLURM_LOCALID": "0",
    }


def test_the_nodes_of_a_slurm_job_share_a_search_and_a_wrong_token_is_refused(tmp_path):
    (tmp_path / searched.HOLD).touch()
    options = ("--from", "slurm", "--port", str(free_ports(1)[0]), *PATIENT)
    with (
        searching(tmp_path, *options, **slurm(0), **TWO) as first,
        searching(tmp_path, *options, **slurm(1), **TWO) as second,
    ):
        first.wait_until(lambda: workers(tmp_path) == {"worker-0-0", "worker-1-0"})
        wrong = {"KERAS_TPU_KIT_TOKEN": "f" * 16}
        with searching(tmp_path, *options, **slurm(1), **wrong) as stranger:
            assert stranger.end() == 2
            assert stranger.pids() == []
        assert "[chief-refused]" in stranger.output
        assert "the token is missing or wrong" in stranger.output
        assert "Set KERAS_TPU_KIT_TOKEN to the chief's own." in stranger.output
        (tmp_path / searched.HOLD).unlink()
        assert [first.end(), second.end()] == [0, 0], first.output + second.output
        assert first.pids() == second.pids() == []
    assert "[chief]" in first.output and "[chief]" not in second.output
    assert_done(tmp_path, 2)
    # A node that comes late, as its worker was being replaced, finds that nothing is left to do.
    with searching(tmp_path, *options[:-1], "1", **slurm(1), **TWO) as late:
        assert late.end() == 0, late.output
    assert "its search is over" in late.output


def in_mounts(hosts: pathlib.Path) -> list[str]:
    """Returns what starts a program that finds a file of its own at /etc/hosts."""
    script = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "-"]


def test_a_pod_that_is_preempted_gives_its_trial_back_and_the_first_pod_finishes(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost search-0.net\n")
    before = in_mounts(hosts)
    if shutil.which("unshare") is None or subprocess.run([*before, "true"]).returncode:
        pytest.skip("needs to give a process names of hosts of its own")
    (tmp_path / searched.HOLD).touch()
    port = str(free_ports(1)[0])
    options = ("--from", "k8s", "--machines", "2", "--service", "net", "--port", port, *PATIENT)

    def pod(index: int) -> dict[str, str]:
        return {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"search-{index}", **TWO}

    with (
        searching(tmp_path, *options, before=before, **pod(0)) as first,
        searching(tmp_path, *options, before=before, **pod(1)) as second,
    ):
        first.wait_until(lambda: workers(tmp_path) == {"worker-0-0", "worker-1-0"})
        assert second.send(signal.SIGTERM) == 75, second.output
        assert second.pids() == []
        (tmp_path / searched.HOLD).unlink()
        assert first.end() == 0, first.output
    assert "[chief-in-plaintext]" in first.output
    assert "worker-1-0 lost trial" in first.output and "it was told to stop" in first.output
    assert crashes(tmp_path) == {}
    assert_done(tmp_path, 2)


@contextlib.contextmanager
def two_networks() -> Iterator[list[list[str]]]:
    """Yields what starts a program on 10.77.0.1, and what starts one on 10.77.0.2."""
    with contextlib.ExitStack() as stack:
        pids = []
        for _ in range(2):
            holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo up; exec sleep 600"], stdout=subprocess.PIPE
            )
            stack.callback(holder.wait)
            stack.callback(holder.kill)
            stack.enter_context(holder.stdout)
            if holder.stdout.readline() != b"up\n":
                pytest.skip("needs network namespaces")
            pids.append(str(holder.pid))
        inside = [["nsenter", "--target", pid, "--net"] for pid in pids]
        commands = [
            [*inside[0], "ip", "link", "add", "here", "type", "veth", "peer", "name", "there"],
            [*inside[0], *f"ip link set there netns {pids[1]}".split()],
        ]
        for place, name in enumerate(("here", "there")):
            commands += [
                [*inside[place], *f"ip addr add 10.77.0.{place + 1}/24 dev {name}".split()],
                [*inside[place], *f"ip link set {name} up".split()],
                [*inside[place], "ip", "link", "set", "lo", "up"],
            ]
        for command in commands:
            if subprocess.run(command).returncode:
                pytest.skip("needs to connect network namespaces")
        yield inside


@pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("unshare", "nsenter", "ip", "hostname")),
    reason="needs util-linux, iproute2 and hostname",
)
def test_the_same_command_on_every_machine_starts_the_chief_on_the_one_that_is_named(tmp_path):
    (tmp_path / searched.HOLD).touch()
    options = ("--chief-host", "10.77.0.1", *PATIENT)
    # Names tell machines apart no more than this; and who is called chief is not one for that.
    named = ["unshare", "--uts", "sh", "-c", 'hostname chief && exec "$@"', "-"]
    with two_networks() as networks:
        here, there = ([*network, *named] for network in networks)
        with searching(tmp_path, *options, before=here) as forgetful:
            assert forgetful.end() == 2
        assert "[chief-without-token]" in forgetful.output
        with (
            searching(tmp_path, *options, before=here, **TWO) as first,
            searching(tmp_path, *options, before=there, **TWO) as second,
        ):
            first.wait_until(lambda: len(workers(tmp_path)) == 2)
            (tmp_path / searched.HOLD).unlink()
            assert [first.end(), second.end()] == [0, 0], first.output + second.output
    assert "[chief]" in first.output and "[chief]" not in second.output
    assert_done(tmp_path, 2)
