"""Of several workers only the chief keeps the files that Keras's callbacks write.

All workers run the callbacks, since reading some of a model's values is a sum over the workers that
waits for each of them; the others write into a folder that is thrown away.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keras

_PATHS = {
    keras.callbacks.ModelCheckpoint: ("filepath",),
    keras.callbacks.TensorBoard: ("log_dir",),
    keras.callbacks.CSVLogger: ("filename",),
}
# What keras.callbacks.BackupAndRestore reads at the start of training and writes afterwards.
_BACKUP_FOLDER = "backup_dir"
_BACKUP_STATE = ("_weights_path", "_training_metadata_path")
_BACKUP_PATHS = (
    _BACKUP_FOLDER,
    *_BACKUP_STATE,
    "_prev_weights_path",
    "_prev_training_metadata_path",
)


@contextlib.contextmanager
def files_of_the_chief(callbacks: Any, is_chief: bool) -> Iterator[Any]:
    """Yields callbacks for `fit`, of which only the chief's write where they were told to.

    Afterwards they name their own files again, on every worker.

    Args:
        callbacks: What `fit` was given: `None`, one, a list, or a `CallbackList`.
        is_chief: Whether this worker keeps the files.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        given = callbacks.callbacks
    else:
        given = callbacks = list(keras.tree.flatten(callbacks)) if callbacks else []
    with contextlib.ExitStack() as stack:
        if is_chief:
            for callback in given:
                if isinstance(callback, keras.callbacks.BackupAndRestore):
                    stack.enter_context(_written_in_one_piece(callback))
        elif given:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            backups = _redirect(given, folder, stack)
            if backups and isinstance(callbacks, list):
                callbacks = [*callbacks, backups]
            elif backups:
                callbacks.append(backups)
        yield callbacks or None


class _AfterRestoring(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types.
    """Turns backups aside once they have been read; it stands behind them in the list."""

    def __init__(self, turn_aside: Callable[[], None]) -> None:
        super().__init__()
        self._turn_aside = turn_aside

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Comes after every backup was restored, and before any is written."""
        self._turn_aside()


def _redirect(given: list[Any], folder: str, stack: contextlib.ExitStack) -> _AfterRestoring | None:
    """Lets callbacks write into `folder` until the stack is left."""
    backups = []
    for place, callback in enumerate(given):
        own = str(pathlib.Path(folder, str(place)))
        for kind, names in _PATHS.items():
            if isinstance(callback, kind):
                stack.enter_context(_moved(callback, names, own))
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            backups.append((callback, own))
    if not backups:
        return None

    def turn_aside() -> None:
        for callback, own in backups:
            stack.enter_context(_moved(callback, _BACKUP_PATHS, own))

    return _AfterRestoring(turn_aside)


@contextlib.contextmanager
def _moved(callback: Any, names: tuple[str, ...], folder: str) -> Iterator[None]:
    """Lets the paths of a callback point into a folder for a while."""
    # Not every release of Keras has all of them.
    before = {name: getattr(callback, name) for name in names if hasattr(callback, name)}
    pathlib.Path(folder).mkdir(exist_ok=True)
    for name, path in before.items():
        is_folder = name in (_BACKUP_FOLDER, "log_dir")
        setattr(callback, name, folder if is_folder else _below(folder, path))
    try:
        yield
    finally:
        for name, path in before.items():
            setattr(callback, name, path)


@contextlib.contextmanager
def _written_in_one_piece(backup: Any) -> Iterator[None]:
    """Lets a backup be written beside its place and moved there, so that no kill leaves half of it.

    Weights move before the epoch's number: what comes in between costs an epoch, never the run.
    """
    stock = backup._save_model

    def save(*args: Any) -> None:
        # A bucket's files appear in one piece anyway.
        if "://" in backup.backup_dir:
            stock(*args)
            return
        pathlib.Path(backup.backup_dir).mkdir(parents=True, exist_ok=True)
        final = [getattr(backup, name) for name in _BACKUP_STATE]
        with tempfile.TemporaryDirectory(dir=backup.backup_dir) as folder:
            with _moved(backup, _BACKUP_STATE, folder):
                stock(*args)
            for path in final:
                pathlib.Path(_below(folder, path)).replace(path)

    backup._save_model = save
    try:
        yield
    finally:
        del backup._save_model


def _below(folder: str, path: Any) -> str:
    return str(pathlib.Path(folder, pathlib.Path(path).name))
