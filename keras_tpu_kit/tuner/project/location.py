"""Where a project may lie."""

from __future__ import annotations

import os

from keras_tpu_kit.errors import Finding, SearchError


def local_directory(directory: str | os.PathLike[str] | None) -> str:
    """Returns a project's directory as a path of this machine's file system.

    Args:
        directory: As passed to the tuner; `None` is the working directory.

    Raises:
        SearchError: `project-not-local`, for `gs://` and its like.
    """
    path = os.fspath(directory) if directory is not None else "."
    if "://" not in path:
        return path
    raise SearchError(
        Finding(
            "project-not-local",
            "error",
            f"directory={path!r} is not a path of this machine.",
            "Object stores neither rename a file in one step nor lock it, so a search that is "
            "killed there can lose trials and two searches can mix theirs.",
            "Pass a local or NFS directory, and copy it after the search, for example with "
            f"`gsutil -m rsync -r searches {path}`.",
        )
    )
