"""Arguments in, a report and an exit code out.

Each command is a module with `add_parser(commands)`, which declares its arguments, and
`run(args)`, which returns the exit code: 0 for success, 1 for a finding, 2 for bad input,
75 (`EX_TEMPFAIL`) for a run that was stopped and can be resumed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from keras_tpu_kit._version import __version__
from keras_tpu_kit.errors import KitError

COMMANDS = ("plan", "doctor", "preflight", "demo", "launch", "scale", "search")


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of `keras-tpu-kit` with all its commands."""
    parser = argparse.ArgumentParser(
        prog="keras-tpu-kit",
        description="Train Keras models on TPUs and several GPUs as you would on one device.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"keras_tpu_kit.cli.{name}").add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code.

    Args:
        argv: The arguments after the program's name; by default those of the process.
    """
    # A command's own words shall not drown in TensorFlow's native log; a user's setting stays.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    args = build_parser().parse_args(argv)
    try:
        return int(args.run(args))
    except KitError as error:
        # One message, never a traceback: the user's input or machine is at fault, not the code.
        sys.stderr.write(f"keras-tpu-kit {args.command}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
