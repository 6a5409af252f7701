"""`keras-tpu-kit doctor`: what is installed, what is wrong with it, and the cure."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from keras_tpu_kit import report

if TYPE_CHECKING:
    from keras_tpu_kit.strategy.installation import Installation


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "doctor",
        help="what is installed, which hardware is seen, and what would make training fail",
        description="Examines versions, wheels, variables and devices. The exit code is 1 when "
        "training would fail. With --self-test it also trains a small model on whatever hardware "
        "is here, compares it with one CPU device, and prints a report to paste into a bug "
        "report; where there is no accelerator it simulates two replicas.",
    )
    parser.add_argument("--self-test", action="store_true", help="train a small model as well")
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        help="seconds that TensorFlow may take to answer (default: 60)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints what was found; returns 1 if training would fail, 0 otherwise."""
    from keras_tpu_kit.strategy.installation import examine_installation

    here = examine_installation(args.timeout)
    findings = here.findings()
    fails = any(finding.severity == "error" for finding in findings)
    if not args.json:
        # First, so that it is there to be pasted if the test ends in a traceback.
        report.show(report.figures_table("Installation", _figures(here)))
    test = None
    if args.self_test and not fails:
        from keras_tpu_kit.cli.self_test import run_self_test

        test = run_self_test(here.num_tpu_chips > 0, here.gpus)
        findings += test.findings
        fails = any(finding.severity == "error" for finding in findings)
    if args.json:
        document: dict[str, Any] = {
            "installation": here.to_dict(),
            "findings": [finding.to_dict() for finding in findings],
            "self_test": None if test is None else test.figures,
        }
        print(json.dumps(document, indent=2))  # noqa: T201
        return int(fails)
    if test is not None:
        report.show(report.figures_table("Self-test", test.as_rows()))
    report.show(*findings)
    if not findings:
        report.show("Nothing here would keep training from working.")
    elif args.self_test and test is None:
        report.show("The self-test was left out: mend the errors first.")
    return int(fails)


def _figures(here: Installation) -> dict[str, tuple[Any, str]]:
    """Returns the installation as rows of a table."""
    rows: dict[str, tuple[Any, str]] = {
        "keras_tpu_kit": (here.to_dict()["keras_tpu_kit"], ""),
        "Python": (".".join(map(str, here.python)), here.system),
    }
    for name, version in sorted(here.wheels.items()):
        rows[name] = (version, "provides the module tensorflow")
    for package, found in here.packages.items():
        rows[package] = (found or "missing", "")
    seen = "could not be asked" if here.devices is None else ", ".join(here.devices)
    rows["devices"] = ("" if here.devices is None else len(here.devices), seen)
    rows["GPUs"] = (len(here.gpus), ", ".join(here.gpus))
    rows["NVIDIA driver"] = ("loaded" if here.has_nvidia_driver else "not loaded", "")
    rows["TPU chips"] = (here.num_tpu_chips, "")
    for name, value in here.variables.items():
        rows[name] = ("set", value)
    return rows
