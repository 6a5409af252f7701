"""`keras-tpu-kit plan`: how a number of rows is cut, without TensorFlow, in an instant."""

from __future__ import annotations

import argparse
import json
import typing

from keras_tpu_kit import report
from keras_tpu_kit.plan import plan_batches
from keras_tpu_kit.topology import Accelerator, Topology


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "plan",
        help="how many steps, how many rows per replica, how many left over",
        description="Plans batches for a number of rows on a number of replicas. "
        "Nothing is trained and TensorFlow is not imported.",
    )
    kinds = typing.get_args(Accelerator)
    parser.add_argument("--accelerator", choices=kinds, default="tpu", help="default: tpu")
    parser.add_argument("--replicas", type=int, default=8, help="replicas in sync (default: 8)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--samples", type=int, required=True, help="training rows")
    parser.add_argument("--validation-samples", type=int, default=0, help="validation rows")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch", type=int, help="rows of one step over all replicas")
    size.add_argument("--per-replica-batch", type=int, help="rows of one step on one replica")
    size.add_argument("--target-batch", type=int, help="about so many rows: the nearest even cut")
    size.add_argument("--steps", type=int, help="steps of one epoch")
    parser.add_argument(
        "--steps-per-execution",
        type=lambda text: text if text == "auto" else int(text),
        default="auto",
        help='steps in one call, or "auto" (default)',
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the plan and returns 0."""
    plan = plan_batches(
        Topology(
            accelerator=args.accelerator, num_replicas=args.replicas, num_workers=args.workers
        ),
        num_samples=args.samples,
        num_validation_samples=args.validation_samples,
        global_batch_size=args.batch,
        per_replica_batch_size=args.per_replica_batch,
        target_batch_size=args.target_batch,
        steps_per_epoch=args.steps,
        steps_per_execution=args.steps_per_execution,
    )
    if args.json:
        derived = {name: value for name, (value, _) in report.plan_figures(plan).items()}
        findings = [finding.to_dict() for finding in plan.findings()]
        document = {"plan": plan.to_dict(), "figures": derived, "findings": findings}
        print(json.dumps(document, indent=2))  # noqa: T201
    else:
        report.show(report.plan_table(plan), *plan.findings())
    return 0
