"""Which workers train together and which of them this one is, as a value.

TensorFlow reads it from the variable TF_CONFIG; Slurm, Kubernetes and a list of hosts each say
it in their own way, and all ways are read here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from keras_tpu_kit.errors import Finding, HardwareError

# TensorFlow's two spellings of the worker that writes the files; "master" is the older.
_CHIEFS = ("chief", "master")
_DEFAULT_PORT = 12345


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The addresses of all workers, and the place of this one.

    Args:
        addresses: `"host:port"` of every worker, the chief first.
        index: This worker's place in `addresses`, from 0.

    Raises:
        HardwareError: If an address has no port or stands twice, or the index is outside.

    Example:

    >>> cluster = Cluster(("a:1", "b:1"), index=1)
    >>> Cluster.from_tf_config(cluster.to_tf_config()) == cluster
    True
    """

    addresses: tuple[str, ...]
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", tuple(self.addresses))
        for address in self.addresses:
            host_and_port = re.fullmatch(r".+:(\d+)", address)
            if host_and_port is None or not 0 < int(host_and_port[1]) < 2**16:
                raise _fault(
                    "worker-address",
                    f"The worker address {address!r} is not of the form host:port, with a port "
                    "from 1 to 65535.",
                    "Workers find each other by host and port.",
                    f'Write it as "{address.split(":")[0] or "host"}:{_DEFAULT_PORT}".',
                )
        if len(set(self.addresses)) < len(self.addresses):
            raise _fault(
                "worker-address",
                f"The workers {', '.join(self.addresses)} do not all have addresses of their own.",
                "Two processes cannot listen on one port.",
                "Give workers on the same host different ports.",
            )
        if not 0 <= self.index < len(self.addresses):
            raise _fault(
                "worker-index",
                f"index={self.index} is outside the {len(self.addresses)} workers.",
                "Workers are counted from 0.",
                f"Use an index from 0 to {len(self.addresses) - 1}.",
            )

    @property
    def num_workers(self) -> int:
        """Processes that train together."""
        return len(self.addresses)

    def to_tf_config(self) -> str:
        """Returns the JSON text that TensorFlow expects in TF_CONFIG."""
        return json.dumps(
            {
                "cluster": {"worker": list(self.addresses)},
                "task": {"type": "worker", "index": self.index},
            }
        )

    @classmethod
    def from_tf_config(cls, text: str) -> Cluster | None:
        """Returns the cluster that TF_CONFIG names, or `None` where it names no workers.

        The chief, spelled "chief" or "master", becomes worker 0.

        Raises:
            HardwareError: If the text is not what TensorFlow expects, or names a task that
                does not train in step with the others (parameter server, evaluator).
        """
        config = _tf_config(text)
        jobs = config.get("cluster", {})
        if not jobs:
            return None
        odd = sorted(set(jobs) - {"worker", "evaluator", *_CHIEFS})
        task_type, task_index = _task(config)
        if odd or task_type not in ("worker", *_CHIEFS):
            raise _fault(
                "tf-config-task",
                f"TF_CONFIG names the task {task_type!r} among the jobs "
                f"{', '.join(map(repr, jobs))}.",
                "The kit trains workers in step; parameter servers and evaluators do not.",
                'Start this process with a task of type "worker" (or "chief"), and no "ps" job.',
            )
        chiefs = [address for name in _CHIEFS for address in jobs.get(name, [])]
        if len(chiefs) > 1 or (task_type in _CHIEFS and task_type not in jobs):
            raise _malformed(text, 'one cluster has at most one "chief" (or "master")')
        before = 0 if task_type in _CHIEFS else len(chiefs)
        if task_index >= len(jobs.get(task_type, [])):
            raise _malformed(text, f"there is no {task_type} number {task_index}")
        return cls((*chiefs, *jobs.get("worker", [])), before + task_index)

    @classmethod
    def from_hosts(cls, hosts: Sequence[str], index: int, port: int = _DEFAULT_PORT) -> Cluster:
        """Returns the cluster of some hosts, each with a port of its own or `port`.

        Example:

        >>> Cluster.from_hosts(["a", "b:9"], index=0, port=7).addresses
        ('a:7', 'b:9')
        """
        return cls(tuple(host if ":" in host else f"{host}:{port}" for host in hosts), index)

    @classmethod
    def from_slurm(cls, variables: Mapping[str, str], port: int | None = None) -> Cluster:
        """Returns the cluster of a Slurm job step: one worker a task.

        Args:
            variables: The environment of a task that `srun` started.
            port: Port of the first worker on each node; by default one that depends on the
                job's number, so that two jobs on one node do not meet.

        Source: https://slurm.schedmd.com/srun.html, "Output environment variables".
        """
        nodes = expand_nodelist(_read(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
        tasks = expand_tasks_per_node(
            _read(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
        )
        if len(tasks) != len(nodes):
            raise _nodelist_fault(f"{len(nodes)} nodes, and tasks for {len(tasks)}")
        if port is None:
            job = _number("SLURM_JOB_ID", variables.get("SLURM_JOB_ID") or "0")
            port = 20_000 + job % 10_000
        places = [(node, task) for node in range(len(nodes)) for task in range(tasks[node])]
        index = _number("SLURM_PROCID", _read(variables, "SLURM_PROCID"))
        placed = [name for name in ("SLURM_NODEID", "SLURM_LOCALID") if variables.get(name)]
        here = tuple(_number(name, variables[name]) for name in placed)
        if index < len(places) and len(here) == 2 and here != places[index]:
            raise _fault(
                "slurm-distribution",
                f"Task {index} runs as task {here[1]} of node {here[0]}, not as task "
                f"{places[index][1]} of node {places[index][0]}.",
                "Workers are counted node by node to know each other's address.",
                "Start the step with srun --distribution=block.",
            )
        return cls(tuple(f"{nodes[node]}:{port + task}" for node, task in places), index)

    @classmethod
    def from_kubernetes(
        cls,
        variables: Mapping[str, str],
        num_workers: int,
        service: str,
        port: int = _DEFAULT_PORT,
    ) -> Cluster:
        """Returns the cluster of a Kubernetes indexed Job: one worker a pod.

        Args:
            variables: The environment of the pod; JOB_COMPLETION_INDEX and HOSTNAME are read.
            num_workers: The Job's `completions`.
            service: Name of the headless Service that is the pods' `subdomain`.
            port: Port that every worker listens on.

        Source: https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/

        Example:

        >>> variables = {"JOB_COMPLETION_INDEX": "1", "HOSTNAME": "train-1"}
        >>> Cluster.from_kubernetes(variables, 2, "net", 9).addresses
        ('train-0.net:9', 'train-1.net:9')
        """
        index = _number("JOB_COMPLETION_INDEX", _read(variables, "JOB_COMPLETION_INDEX"))
        host = _read(variables, "HOSTNAME")
        job = host.removesuffix(f"-{index}")
        if job == host:
            raise _fault(
                "kubernetes-hostname",
                f"HOSTNAME={host!r} does not end in the completion index {index}.",
                "The pods of an indexed Job are named JOB-INDEX, and find each other by that name.",
                'Set completionMode: Indexed in the Job, and no "hostname" in its pod template.',
            )
        hosts = [f"{job}-{place}.{service}" for place in range(num_workers)]
        return cls.from_hosts(hosts, index, port)


def expand_nodelist(text: str) -> list[str]:
    """Returns the hosts of a compressed Slurm node list.

    Example:

    >>> expand_nodelist("login,node[01-03,7]-ib")
    ['login', 'node01-ib', 'node02-ib', 'node03-ib', 'node7-ib']
    """
    if not re.fullmatch(r"(?:[^\[\]]|\[[^\[\]]+\])+", text):
        raise _nodelist_fault(text)
    hosts = []
    for item in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        names = [""]
        for literal, ranges in re.findall(r"([^\[]+)|\[([^\]]*)\]", item):
            endings = [literal] if literal else _expand_ranges(ranges, text)
            names = [name + ending for name in names for ending in endings]
        hosts.extend(names)
    return hosts


def expand_tasks_per_node(text: str) -> list[int]:
    """Returns the number of tasks of each node of a Slurm job.

    Example:

    >>> expand_tasks_per_node("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", item.strip())
        if match is None:
            raise _nodelist_fault(text)
        counts.extend([int(match[1])] * int(match[2] or 1))
    return counts


def _expand_ranges(text: str, whole: str) -> list[str]:
    """Returns the numbers of `01-03,7`, with their leading zeros."""
    numbers: list[str] = []
    for item in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
        if match is None:
            raise _nodelist_fault(whole)
        first, last = match[1], match[2] or match[1]
        numbers.extend(f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1))
    return numbers


def _read(variables: Mapping[str, str], *names: str) -> str:
    """Returns the first of some variables that is set."""
    for name in names:
        if variables.get(name):
            return variables[name]
    raise _fault(
        "cluster-variable-missing",
        f"The variable {' or '.join(names)} is not set.",
        "Workers learn from it where the others are.",
        "Start the command inside the job: with srun in a Slurm job, or in a pod of an indexed "
        "Kubernetes Job; elsewhere use --hosts and --index.",
    )


def _number(name: str, text: str) -> int:
    """Returns the whole number that a variable holds."""
    if not text.isdecimal():
        raise _fault(
            "cluster-variable-unreadable",
            f"{name}={text!r} is no whole number.",
            "Workers learn from it which of them they are.",
            "Start the command inside the job, where the scheduler sets it; elsewhere use --hosts "
            "and --index.",
        )
    return int(text)


def _tf_config(text: str) -> dict[str, Any]:
    """Returns TF_CONFIG as a dict whose cluster maps job names to lists of addresses."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _malformed(text, f"it is not JSON ({error})") from error
    if not isinstance(config, dict) or not isinstance(config.get("cluster", {}), dict):
        raise _malformed(text, 'it is not an object with a "cluster" object in it')
    for name, addresses in config.get("cluster", {}).items():
        if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
            raise _malformed(text, f'"{name}" is not a list of "host:port" texts')
    return config


def _task(config: Mapping[str, Any]) -> tuple[str, int]:
    """Returns the type and the index of TF_CONFIG's task."""
    task = config.get("task", {})
    index = str(task.get("index", "")) if isinstance(task, dict) else ""
    if not index.isdecimal() or not isinstance(task.get("type"), str):
        raise _malformed(json.dumps(config), 'its "task" does not hold a "type" and an "index"')
    return task["type"], int(index)


def _malformed(text: str, reason: str) -> HardwareError:
    return _fault(
        "tf-config-malformed",
        f"TF_CONFIG={text!r} cannot be read: {reason}.",
        "Workers learn from it who trains together and which of them this one is.",
        "Let keras-tpu-kit launch set it, or write it as "
        """{"cluster": {"worker": ["host0:12345", "host1:12345"]}, """
        """"task": {"type": "worker", "index": 0}} ; unset it to train on one machine.""",
    )


def _nodelist_fault(text: str) -> HardwareError:
    return _fault(
        "slurm-nodelist",
        f"The Slurm list {text!r} cannot be read.",
        "Workers learn from it on which nodes the others run.",
        "Pass the hosts yourself: --hosts a,b --index 0.",
    )


def _fault(code: str, what: str, why: str, fix: str) -> HardwareError:
    return HardwareError(Finding(code, "error", what=what, why=why, fix=fix))
