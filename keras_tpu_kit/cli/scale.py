"""`keras-tpu-kit scale`: what several replicas or workers gain, and what holds them back."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

from keras_tpu_kit.cli.arguments import at_least
from keras_tpu_kit.cli.files import require_folder


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "scale",
        help="samples per second on 1, 2, 4 replicas or workers, beside published figures",
        description="Trains a factory on several numbers of replicas (or workers), in turn and "
        "each in a process of its own, and prints speed-up and efficiency. On a CPU each replica "
        "gets its own share of the processors, so that the figures mean something.",
    )
    parser.add_argument("target", metavar="MODULE:FACTORY", help="a ModelFactory with data()")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--replicas", type=_counts, help="such as 1,2,4 (default: 1,2)")
    what.add_argument("--workers", type=_counts, help="processes of one replica each, as 1,2")
    parser.add_argument(
        "--batch", type=at_least(1), default=64, help="rows of a step on one replica (default: 64)"
    )
    parser.add_argument("--mode", choices=("weak", "strong", "both"), default="both")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="default: 3")
    parser.add_argument(
        "--epochs", type=at_least(1), default=3, help="of each training (default: 3)"
    )
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a training may take")
    parser.add_argument("--plot", type=pathlib.Path, default=pathlib.Path("scaling.png"))
    parser.add_argument("--json", type=pathlib.Path, help="a file for all figures")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measures, prints a table, draws a picture, and returns 0."""
    from keras_tpu_kit import backend, report
    from keras_tpu_kit.scaling import figures, measure_series
    from keras_tpu_kit.scaling.picture import draw_scaling

    require_folder(args.plot)
    require_folder(args.json)
    backend.require_tensorflow()
    unit = "workers" if args.workers else "replicas"
    scaling = measure_series(
        args.target,
        counts=args.workers or args.replicas or [1, 2],
        per_replica_batch_size=args.batch,
        modes=("weak", "strong") if args.mode == "both" else (args.mode,),
        rounds=args.rounds,
        epochs=args.epochs,
        workers=bool(args.workers),
        accelerator=args.accelerator,
        timeout=args.timeout,
        progress=lambda text: print(text, file=sys.stderr),  # noqa: T201
    )
    title = f"Scaling over {unit}, medians of {args.rounds} rounds"
    report.show(report.rows_table(title, figures.HEADER, scaling.rows()))
    draw_scaling(scaling, args.plot, unit)
    sys.stdout.write(f"Picture: {args.plot}\n")
    if args.json:
        args.json.write_text(json.dumps({"unit": unit, **scaling.to_dict()}, indent=2))
    return 0


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of counts such as 1,2,4")
    if max(counts) == 1:
        raise argparse.ArgumentTypeError("one alone is compared with nothing; use 1,2 or more")
    return counts
