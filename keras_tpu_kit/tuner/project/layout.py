"""Which files a project is made of; the first two are KerasTuner's own."""

from __future__ import annotations

import os
import pathlib

from keras_tpu_kit.tuner.project import files

ORACLE_FILE = "oracle.json"
TRIAL_FILE = "trial.json"
# One line for each trial that ended: the last to be lost when files are damaged.
JOURNAL_FILE = "trials.jsonl"
# Is there once a search had no more trials, until it is extended.
OVER_FILE = ".over"
# The kit's part of KerasTuner's files, which KerasTuner leaves alone.
KIT_KEY = "keras_tpu_kit"


def project_exists(path: str | os.PathLike[str]) -> bool:
    """Whether a directory holds anything of an earlier search.

    Example:

    >>> project_exists("/nowhere")
    False
    """
    directory = pathlib.Path(path)
    names = (ORACLE_FILE, ORACLE_FILE + files.PREVIOUS, JOURNAL_FILE)
    return any((directory / name).exists() for name in names) or any(
        entry.name.startswith("trial_")
        for entry in (directory.iterdir() if directory.is_dir() else ())
    )
