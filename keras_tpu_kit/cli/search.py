"""`keras-tpu-kit search`: one search over all of a machine, or of several, supervised."""

from __future__ import annotations

import argparse
import gc
import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

from keras_tpu_kit import processes
from keras_tpu_kit.checks.service import is_loopback
from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.errors import Finding, KitError, SearchError
from keras_tpu_kit.plan import require_count
from keras_tpu_kit.searching import (
    EXIT_NO_CHIEF,
    EXIT_RETIRED,
    SearchOver,
    SearchSupervisor,
    ServiceSettings,
    this_machine,
)
from keras_tpu_kit.searching.shares import keep_to_share
from keras_tpu_kit.searching.supervisor import PARENT_VARIABLE, end_with_parent
from keras_tpu_kit.targets import load_target

# What the process that supervises this one makes of an error: start it again.
_EXIT_CODES = {
    "chief-missing": EXIT_NO_CHIEF,
    "chief-lost": EXIT_NO_CHIEF,
    "trial-given-away": EXIT_RETIRED,
}
# A machine of a search may come so late that it is over; an end before that is an earlier one's.
_LATE_SECONDS = 600.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "search",
        help="search hyperparameters with several workers, supervised",
        description="Starts a chief that hands out trials and workers that train them, replaces "
        "those that die, and goes on where an earlier search of the project ended. SIGTERM ends "
        "all of it with exit code 75, Ctrl-C with 130; the same command resumes.",
        epilog="MODULE:make_tuner names a function without arguments that returns the tuner, or "
        "the tuner and a dict of what its search() takes. | Two workers on this machine: "
        "keras-tpu-kit search my_search:make_tuner --workers 2 | In a Slurm job: "
        "srun keras-tpu-kit search my_search:make_tuner --from slurm",
    )
    parser.add_argument("target", metavar="MODULE:make_tuner", help="what returns the tuner")
    parser.add_argument("--workers", type=int, help="on this machine (default: one a GPU, or 1)")
    parser.add_argument(
        "--accelerator",
        choices=("auto", "cpu", "gpu", "tpu"),
        default="auto",
        help="what the workers share (default: auto)",
    )
    parser.add_argument("--epochs", type=int, help="passed to the tuner's search()")
    memory = parser.add_argument_group("replacing workers, so that memory stays bounded")
    memory.add_argument(
        "--trials-per-worker", type=int, default=0, help="trials of one process (default: any)"
    )
    memory.add_argument(
        "--growth-per-worker",
        type=int,
        default=128,
        metavar="MB",
        help="growth of one process after its second trial (default: 128; 0: any)",
    )
    machines = parser.add_argument_group("several machines (default: this one alone)")
    machines.add_argument(
        "--chief-host", metavar="HOST", help="where the chief runs: it starts on that machine"
    )
    machines.add_argument(
        "--port", type=int, help="the chief's port (default: a free one, or 7077)"
    )
    machines.add_argument(
        "--from",
        dest="source",
        choices=("slurm", "k8s"),
        help="read Slurm's or a Kubernetes indexed Job's variables; the chief is on the first",
    )
    machines.add_argument("--machines", type=int, help="k8s: the Job's completions")
    machines.add_argument("--service", help="k8s: name of the headless Service of the pods")
    machines.add_argument(
        "--wait-for-chief", type=float, default=15.0, metavar="SECONDS", help="default: 15"
    )
    machines.add_argument("--tls-certificate", default="", help="PEM: the chief's certificate")
    machines.add_argument("--tls-key", default="", help="PEM: the chief's private key")
    machines.add_argument(
        "--tls-authority",
        default="",
        help="PEM: whom the workers trust (default: the certificate itself)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Searches, and returns 0 once the search is over."""
    if PARENT_VARIABLE in os.environ:
        return _take_part(args)
    machine = this_machine(args.accelerator)
    num_workers = max(1, len(machine.gpus))
    if args.workers is not None:
        num_workers = require_count("--workers", args.workers, 1)
    shares = machine.shares(num_workers)
    chief, workers = _settings(args, num_workers)
    arguments = [args.target, *(["--epochs", str(args.epochs)] if args.epochs else [])]
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["PYTHONUNBUFFERED"] = "1"
    supervisor = SearchSupervisor(
        [sys.executable, "-m", "keras_tpu_kit", "search", *arguments],
        chief,
        workers,
        shares,
        _write,
    )
    return supervisor.run()


def _settings(
    args: argparse.Namespace, num_workers: int
) -> tuple[ServiceSettings | None, list[ServiceSettings]]:
    """Returns how the chief, if it belongs here, and each worker take part."""
    host, port, prefix, is_here = _chief_place(args)
    token = os.environ.get("KERAS_TPU_KIT_TOKEN", "")
    if not token and is_loopback(host):
        # Nobody else on this machine is to take part either.
        token = secrets.token_hex(16)
    if not token:
        raise SearchError(_no_token(host))
    shared: dict[str, Any] = {"port": port, "token": token}
    chief = None
    if is_here:
        listen = host if is_loopback(host) else "0.0.0.0"
        chief = ServiceSettings(
            "chief", listen, certificate=args.tls_certificate, key=args.tls_key, **shared
        )
    workers = [
        ServiceSettings(
            f"{prefix}{number}",
            host,
            certificate=args.tls_authority or args.tls_certificate,
            # Started once the chief answers; what they wait for then is its successor.
            wait_seconds=max(60.0, args.wait_for_chief) if is_here else args.wait_for_chief,
            max_trials=args.trials_per_worker,
            max_growth_mb=args.growth_per_worker,
            begun=time.time() - _LATE_SECONDS,
            **shared,
        )
        for number in range(num_workers)
    ]
    return chief, workers


def _chief_place(args: argparse.Namespace) -> tuple[str, int, str, bool]:
    """Returns the chief's host and port, what names this machine's workers, and if it is here."""
    if args.source is None:
        host = args.chief_host or "127.0.0.1"
        if is_loopback(host):
            return host, args.port or processes.free_ports(1)[0], "worker", True
        # By chance, as two machines or two commands of one may have the same host name; and what
        # is called chief is one, for KerasTuner.
        name = socket.gethostname().replace("chief", "host")
        prefix = f"worker-{name}-{secrets.token_hex(2)}-"
        return host, args.port or 7077, prefix, _is_here(host)
    if args.source == "slurm":
        cluster = Cluster.from_slurm(os.environ, args.port)
    else:
        if not args.machines or not args.service:
            raise SearchError(_incomplete())
        cluster = Cluster.from_kubernetes(
            os.environ, args.machines, args.service, args.port or 7077
        )
    host, _, port = cluster.addresses[0].rpartition(":")
    return host, int(port), f"worker-{cluster.index}-", cluster.index == 0


def _is_here(host: str) -> bool:
    """Whether a host's name is one of this machine's: only those can be bound to."""
    try:
        address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], address[1]) as probe:
            probe.bind(address[4])
    except OSError:
        return False
    return True


def _take_part(args: argparse.Namespace) -> int:
    """Is a chief or a worker, as the environment says, and returns its exit code."""
    end_with_parent()
    keep_to_share()
    try:
        tuner, arguments = _make(args.target)
        if args.epochs:
            arguments["epochs"] = args.epochs
        tuner.search(**arguments)
    except KitError as error:
        is_over = isinstance(error, SearchOver)
        code = 0 if is_over else _EXIT_CODES.get(error.finding.code)
        if code is None:
            raise
        sys.stderr.write(f"{error}\n")
        return code
    finally:
        # Python collects on its way out, and goes through all that TensorFlow made: a second or
        # more, in which the next process or the user waits.
        gc.freeze()
    retirement = getattr(tuner.oracle, "retirement", None)
    return EXIT_RETIRED if retirement is not None and retirement.has_retired else 0


def _make(target: str) -> tuple[Any, dict[str, Any]]:
    """Returns the tuner and what its search takes."""
    make = load_target(target if ":" in target else f"{target}:make_tuner")
    if not callable(make):
        raise SearchError(_not_a_tuner(target, "names no function"))
    made = make()
    tuner, arguments = made if isinstance(made, tuple) else (made, {})
    if not hasattr(tuner, "project") or not isinstance(arguments, Mapping):
        raise SearchError(_not_a_tuner(target, f"returned {type(tuner).__name__}"))
    return tuner, dict(arguments)


def _write(line: str) -> None:
    """Writes one line of a process at once; nobody may be there to read it."""
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Ctrl-C ends the `tee` behind a pipe as well, and the search has yet to stop in order.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


def _not_a_tuner(target: str, what: str) -> Finding:
    return Finding(
        "search-target",
        "error",
        f"{target!r} {what}.",
        "Chief and workers each call the function to get the tuner whose trials they share.",
        "Pass MODULE:make_tuner, a function without arguments that returns ktk.RandomSearch(...) "
        "or another of the kit's tuners, or a tuple of the tuner and a dict for its search().",
    )


def _no_token(host: str) -> Finding:
    return Finding(
        "chief-without-token",
        "error",
        f"The chief on {host} is reached by other machines, and there is no token.",
        "Every machine that reaches the port could read the search and report false results.",
        "Set KERAS_TPU_KIT_TOKEN to the same secret on every machine, for example from "
        "`openssl rand -hex 16`.",
    )


def _incomplete() -> Finding:
    return Finding(
        "search-arguments",
        "error",
        "--from k8s does not say how many pods there are.",
        "Each worker has to know the chief's address.",
        "Add --machines 4 --service NAME: the Job's completions and its headless Service.",
    )
