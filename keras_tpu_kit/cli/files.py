"""Files that a command writes at its end, looked at before any time is spent."""

from __future__ import annotations

import pathlib

from keras_tpu_kit.errors import Finding, KitError


def require_folder(path: str | pathlib.Path | None) -> None:
    """Raises where a file to be written has no folder to be in.

    Args:
        path: The file, or `None` where none was asked for.

    Raises:
        KitError: If there is no such folder.
    """
    folder = pathlib.Path(path or ".").absolute().parent
    if path and not folder.is_dir():
        raise KitError(
            Finding(
                "no-folder",
                "error",
                what=f"There is no folder for {path}.",
                why="The file is written at the end, when all the work is done.",
                fix=f"mkdir -p {folder}",
            )
        )
