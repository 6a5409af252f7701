"""`keras-tpu-kit preflight`: would this model train on that TPU? No TPU is needed to know."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from typing import Any

from rich.console import Console

from keras_tpu_kit import backend
from keras_tpu_kit.checks.compiler import check_timeout
from keras_tpu_kit.cli.files import require_folder
from keras_tpu_kit.cli.quiet import native_logs_kept, terminal
from keras_tpu_kit.errors import Finding, PreflightError, refuse
from keras_tpu_kit.tpu_types import COMPARED, tpu_type

DEMO = "keras_tpu_kit.preflight.demo:Mnist"
_DEFAULT_TIMEOUT = 900.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "preflight",
        help="would this model compile, fit and run well on a TPU? no TPU needed",
        description="Compiles a model's own training step with the real TPU compiler, with no "
        "TPU present, draws a few batches of its data, and reports what would happen. Nothing "
        "is trained.",
    )
    parser.add_argument(
        "subject",
        nargs="?",
        metavar="MODULE:NAME",
        help="a function that returns a compiled model, a ModelFactory, or a .keras file",
    )
    parser.add_argument("--demo", action="store_true", help="examine the MNIST model instead")
    parser.add_argument(
        "--tpu",
        default="v3-8",
        metavar="TYPE",
        help=f"such as {', '.join(COMPARED)}, a larger slice, gpu-4 or cpu; or all, to compare "
        "(default: v3-8)",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--batch", type=int, metavar="ROWS", help="rows of a step, all replicas")
    size.add_argument("--per-replica-batch", type=int, metavar="ROWS", help="rows on one replica")
    parser.add_argument(
        "--steps-per-epoch", type=int, metavar="STEPS", help="for data without an end"
    )
    parser.add_argument("--samples", type=int, help="training rows, where the data does not tell")
    parser.add_argument("--remote", action="store_true", help="the TPU is on another machine")
    parser.add_argument(
        "--largest-batch", action="store_true", help="seek the largest batch that fits"
    )
    parser.add_argument(
        "--suggest", action="store_true", help="compile what bfloat16 and optimizers would save"
    )
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="TYPE=PRICE",
        help="price of an hour, for the cost of an epoch (may be repeated)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.add_argument("--html", metavar="FILE", help="write one HTML file with pictures")
    parser.add_argument(
        "--compiler-python",
        metavar="PATH",
        help="an interpreter with jax, jaxlib and libtpu, where this one has none or older ones",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help=f"for each compilation (default: {_DEFAULT_TIMEOUT:g})",
    )
    parser.add_argument("--no-cache", action="store_true", help="compile anew")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the report and returns 0, or 1 where it holds an error."""
    if bool(args.subject) == args.demo:
        raise PreflightError(_what_to_examine(args.subject))
    prices = dict(map(_price, args.price))
    if not re.match(r"all$|gpu|cpu", args.tpu.lower()):
        tpu_type(args.tpu)  # A mistyped name is told before TensorFlow is imported.
    refuse(PreflightError, check_timeout(args.timeout))
    require_folder(args.html)
    # TensorFlow and the compiler write much to standard error that is nobody's concern.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    backend.require_tensorflow()
    status = Console(file=terminal(), highlight=False)
    with contextlib.closing(status.file), status.status("importing TensorFlow") as spinner:
        with native_logs_kept():
            import tensorflow as tf

            from keras_tpu_kit.preflight import run_preflight
            from keras_tpu_kit.preflight.demo import GLOBAL_BATCH_SIZE

            tf.config.list_physical_devices()  # Looks for GPUs, and writes of it.

        def progress(text: str) -> None:
            spinner.update(text)
            if not status.is_terminal:
                status.print(text)

        def on_row(row: Any) -> None:
            status.print(_row_line(row))

        # What the user's code prints is no part of the JSON.
        with contextlib.redirect_stdout(sys.stderr if args.json else sys.stdout):
            found = run_preflight(
                DEMO if args.demo else args.subject,
                tpu=args.tpu,
                global_batch_size=_demo_batch(args, GLOBAL_BATCH_SIZE),
                per_replica_batch_size=args.per_replica_batch,
                steps_per_epoch=args.steps_per_epoch,
                num_samples=args.samples,
                remote=args.remote,
                search=args.largest_batch or "auto",
                suggest=args.suggest or "auto",
                prices=prices,
                compiler_python=args.compiler_python,
                timeout=args.timeout,
                use_cache=not args.no_cache,
                progress=progress,
                on_row=on_row,
            )
    if args.html:
        from keras_tpu_kit.preflight.page import write_page

        write_page(found, args.html)
    if args.json:
        sys.stdout.write(found.to_json() + "\n")
    else:
        found.show()
        if args.html:
            sys.stdout.write(f"Written to {args.html}\n")
    return 1 if found.has_errors else 0


def _demo_batch(args: argparse.Namespace, demo: int) -> int | None:
    own = args.batch
    is_said = own is not None or args.per_replica_batch is not None
    return demo if args.demo and not is_said else own


def _row_line(row: Any) -> str:
    fits = {True: "fits", False: "does not fit", None: "does not compile"}[row.fits]
    rate = f", about {row.samples_per_second:,.0f} samples/s" if row.samples_per_second else ""
    largest = f", largest batch {row.largest_batch:,}" if row.largest_batch else ""
    return f"{row.tpu}: {fits}{largest}{rate}"


def _price(text: str) -> tuple[str, float]:
    name, _, price = text.partition("=")
    try:
        return name, float(price)
    except ValueError:
        raise PreflightError(
            Finding(
                "price-unreadable",
                "error",
                what=f"--price {text} is not a TPU type and a number.",
                why="It is the price of one hour of that type, in any currency.",
                fix="Write it as --price v3-8=8.0 .",
            )
        ) from None


def _what_to_examine(subject: str | None) -> Finding:
    return Finding(
        "preflight-nothing",
        "error",
        what="--demo and a model were both given." if subject else "No model was given.",
        why="One model is examined at a time.",
        fix="keras-tpu-kit preflight my_model.py:get_compiled_model --tpu v3-8 , or "
        "keras-tpu-kit preflight --demo .",
    )
