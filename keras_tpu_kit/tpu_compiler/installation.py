"""Which TPU compiler is installed, and whether its parts go together."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import platform
import sys

from keras_tpu_kit import backend
from keras_tpu_kit.checks import compiler as rules
from keras_tpu_kit.errors import Finding, PreflightError, refuse
from keras_tpu_kit.processes import describe_exit, run_limited

PACKAGES = ("jax", "jaxlib", "libtpu")
CHILD = pathlib.Path(__file__).with_name("child.py")
# Asking an interpreter for versions imports nothing heavy.
_ASK_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Compiler:
    """An interpreter that holds a TPU compiler.

    Args:
        python: Its executable.
        versions: Versions of jax, jaxlib and libtpu in it.
    """

    python: str
    versions: dict[str, str]


def find_compiler(python: str | os.PathLike[str] | None = None) -> Compiler:
    """Returns the TPU compiler of an interpreter, by default of this one.

    Args:
        python: Another interpreter, where the training environment holds an older libtpu.

    Raises:
        PreflightError: If there is none, its parts do not go together, or no such compiler
            exists for this machine.
    """
    refuse(PreflightError, rules.check_compiler_platform(sys.platform, platform.machine()))
    own = python is None or os.fspath(python) == sys.executable
    versions = _own_versions() if own else _versions_of(os.fspath(python or ""))
    refuse(PreflightError, rules.check_compiler_versions(**versions))
    return Compiler(
        sys.executable if own else os.fspath(python or ""),
        {name: version for name, version in versions.items() if version is not None},
    )


def compiler_problem(python: str | os.PathLike[str] | None = None) -> Finding | None:
    """Returns why no TPU compiler can run here, or `None`."""
    try:
        find_compiler(python)
    except PreflightError as error:
        return error.finding
    return None


def _own_versions() -> dict[str, str | None]:
    return {name: backend.installed_version(name) for name in PACKAGES}


def _versions_of(python: str) -> dict[str, str | None]:
    try:
        code, output = run_limited([python, str(CHILD), "--versions"], timeout=_ASK_SECONDS)
    except OSError as error:
        raise PreflightError(rules.no_interpreter(python, str(error))) from None
    if code:
        raise PreflightError(rules.no_interpreter(python, f"it {describe_exit(code)}"))
    answer: dict[str, str | None] = json.loads(output.splitlines()[-1])
    return answer
