"""`keras-tpu-kit launch`: starts the workers of one training run, and ends them together."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from keras_tpu_kit import processes
from keras_tpu_kit.cli.arguments import at_least
from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import Finding, HardwareError

_PORTS = 2**16
# What only some ways to find the workers read.
_WHERE = ("workers", "service", "hosts", "index", "gpus_per_worker")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "launch",
        help="start the workers of one training run, and end them together",
        description="Starts a script as one or more workers with TF_CONFIG set, marks every line "
        "of their output with the worker's number, and ends all when one fails. SIGTERM is "
        "passed on; workers that then save and exit with code 75 make this command exit so, too.",
        epilog="Two workers on this machine: keras-tpu-kit launch --workers 2 train.py --epochs 3 "
        "| In a Slurm job: srun keras-tpu-kit launch --from slurm train.py",
    )
    where = parser.add_argument_group("where the workers are (default: all on this machine)")
    where.add_argument("--workers", type=at_least(1), help="number of workers")
    where.add_argument(
        "--from",
        dest="source",
        choices=("slurm", "k8s"),
        help="read Slurm's or a Kubernetes indexed Job's variables, and start this one's worker",
    )
    where.add_argument("--service", help="k8s: name of the headless Service of the pods")
    where.add_argument("--hosts", help="a,b,c: the hosts of all workers; needs --index")
    where.add_argument("--index", type=at_least(0), help="with --hosts: which of them this one is")
    where.add_argument("--port", type=int, help="port of the (first) worker on each host")
    parser.add_argument(
        "--gpus-per-worker",
        type=at_least(1),
        help="on this machine: give each worker so many GPUs of its own",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        help="seconds between asking a worker to stop and killing it (default: 30)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module, as python -m")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the workers and returns the exit code of the one that failed first."""
    clusters = _clusters(args)
    commands = [
        processes.Command(
            _argv(args),
            f"worker {cluster.index}",
            {"PYTHONUNBUFFERED": "1", **_task(cluster), **_gpus(args.gpus_per_worker, place)},
        )
        for place, cluster in enumerate(clusters)
    ]
    outcome = processes.run_group(commands, write=_write, grace=args.grace)
    if outcome.first is not None:
        failed = clusters[outcome.first]
        ended = processes.describe_exit(outcome.exit_code)
        rest = "; the other workers were stopped" if len(clusters) > 1 else ""
        sys.stderr.write(f"keras-tpu-kit launch: worker {failed.index} {ended}{rest}.\n")
    elif outcome.stopped_by is not None:
        name = signal.Signals(outcome.stopped_by).name
        sys.stderr.write(f"keras-tpu-kit launch: {name} was passed on, and all workers ended.\n")
    return outcome.exit_code


def _clusters(args: argparse.Namespace) -> list[Cluster]:
    """Returns the workers that this process starts: all of them, or the one of this host."""
    _refuse_contradictions(args)
    variables = os.environ
    if args.source == "slurm":
        return [Cluster.from_slurm(variables, args.port)]
    port = {} if args.port is None else {"port": args.port}
    if args.source == "k8s":
        if not args.workers or not args.service:
            raise _incomplete("--from k8s", "--workers 4 --service NAME")
        return [Cluster.from_kubernetes(variables, args.workers, args.service, **port)]
    if args.hosts:
        if args.index is None:
            raise _incomplete("--hosts", "--index 0, another number on each host")
        return [Cluster.from_hosts(args.hosts.split(","), args.index, **port)]
    if not args.workers:
        raise _incomplete("launch", "--workers 2, --from slurm, --from k8s or --hosts a,b")
    if args.port is not None and args.port + args.workers > _PORTS:
        raise HardwareError(_no_ports(args.port, args.workers))
    ports = (
        processes.free_ports(args.workers)
        if args.port is None
        else range(args.port, args.port + args.workers)
    )
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    return [Cluster(addresses, index) for index in range(args.workers)]


def _refuse_contradictions(args: argparse.Namespace) -> None:
    """Raises where an argument is given that the way to find the workers does not read."""
    ways = (
        (name, reads)
        for name, is_given, reads in (
            ("--from slurm", args.source == "slurm", ()),
            ("--from k8s", args.source == "k8s", ("workers", "service", "gpus_per_worker")),
            ("--hosts", bool(args.hosts), ("hosts", "index", "gpus_per_worker")),
            ("--workers", bool(args.workers), ("workers", "gpus_per_worker")),
        )
        if is_given
    )
    way, read = next(ways, ("", _WHERE))  # Where none is given, that is what is told.
    for name in _WHERE:
        if getattr(args, name) is not None and name not in read:
            argument = f"--{name.replace('_', '-')}"
            raise HardwareError(
                Finding(
                    "launch-contradiction",
                    "error",
                    what=f"{argument} says nothing beside {way}.",
                    why=f"With {way} the workers are found in another way.",
                    fix=f"Leave out {argument}, or {way}.",
                )
            )


def _argv(args: argparse.Namespace) -> list[str]:
    """Returns the command line of one worker."""
    return [sys.executable, *(["-m"] if args.module else []), args.script, *args.arguments]


def _task(cluster: Cluster) -> dict[str, str]:
    """Returns the variables that tell a worker who it is; one alone needs none."""
    return {"TF_CONFIG": cluster.to_tf_config() if cluster.num_workers > 1 else "{}"}


def _gpus(gpus_per_worker: int | None, place: int) -> dict[str, str]:
    """Returns the variable that gives a worker its share of this machine's GPUs."""
    if gpus_per_worker is None:
        return {}
    first = place * gpus_per_worker
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(first, first + gpus_per_worker)))}


def _write(line: str) -> None:
    """Writes one line of a worker at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _no_ports(port: int, workers: int) -> Finding:
    return Finding(
        "launch-ports",
        "error",
        what=f"--port {port} leaves no ports for {workers} workers.",
        why=f"Each worker listens on one of its own, and the last there is is {_PORTS - 1}.",
        fix=f"Use --port {_PORTS - workers} or less, or leave it out.",
    )


def _incomplete(given: str, needed: str) -> HardwareError:
    return HardwareError(
        Finding(
            "launch-arguments",
            "error",
            what=f"{given} does not say which workers there are.",
            why="Each worker is told the addresses of all, and its own place among them.",
            fix=f"Add {needed}.",
        )
    )
