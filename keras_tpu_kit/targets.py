"""Finds what a command line names as `MODULE:NAME`."""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import sys
from typing import Any

from keras_tpu_kit.errors import Finding, KitError


def load_target(spec: str) -> Any:
    """Returns the object that `"module:name"` names; the current folder is looked in first.

    Args:
        spec: `"module:name"`, `"package.module:name"` or `"file.py:name"`.

    Raises:
        KitError: If there is no such module, or nothing of that name in it. What the module
            itself raises when it is imported comes through.

    Example:

    >>> load_target("keras_tpu_kit.plan:largest_divisor")(468, 64)
    52
    """
    module_name, _, attribute = spec.partition(":")
    path = pathlib.Path(module_name)
    folder = pathlib.Path.cwd()
    if module_name.endswith(".py"):
        folder, module_name = path.parent.resolve(), path.stem
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    # A module that is there and imports one that is not tells so itself.
    if not module_name or importlib.util.find_spec(module_name.partition(".")[0]) is None:
        raise KitError(
            Finding(
                "target-module",
                "error",
                what=f"{spec!r} names no module that is in {folder} or installed.",
                why="A command imports your code as Python would from this folder.",
                fix="Pass MODULE:NAME, such as train:Classifier for the class in train.py.",
            )
        )
    module = importlib.import_module(module_name)
    if not attribute or not hasattr(module, attribute):
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module_name
        ]
        raise KitError(
            Finding(
                "target-name",
                "error",
                what=f"{spec!r} names nothing in the module {module_name!r}.",
                why=f"That module defines {', '.join(names[:8]) or 'no function or class'}.",
                fix=f"Pass {module_name}:NAME with the name of one of its functions or classes.",
            )
        )
    return getattr(module, attribute)
