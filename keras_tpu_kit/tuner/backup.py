"""Saves a trial that takes long while it trains, so that a kill costs less than all of it."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_tpu_kit.tuner import weights
from keras_tpu_kit.tuner.project import files

if TYPE_CHECKING:
    from keras_tpu_kit.tuner.trial_run import TrialRun

NOTE_FILE = "epoch.json"


class EpochBackup(keras.callbacks.Callback):  # type: ignore[misc]
    """Saves weights, optimizer and best epoch now and then, and goes on from them.

    It stands behind the reporter of epochs, so that what it saves has been reported.

    Args:
        run: The trial's run.
        directory: Where to save; it is removed when the trial has ended.
        seconds: Training time between two saves; a shorter trial is never saved.
        clock: Seconds, from any start.
    """

    async_safe = True

    def __init__(
        self,
        run: TrialRun,
        directory: pathlib.Path,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._run = run
        self._directory = directory
        self._seconds = seconds
        self._clock = clock
        self._saved_at = clock()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Goes on after the last epoch that was saved of this trial, if there is one."""
        self._saved_at = self._clock()
        note = files.read_json(self._directory / NOTE_FILE).value
        values = self._run.trial.hyperparameters.values
        if note is None or note["values"] != values or not self.model.built:
            return
        weights.restore(self.model, str(self._directory / note["weights"]))
        best = None
        if note["best"]:
            with np.load(self._directory / note["best"]) as arrays:
                best = [arrays[f"arr_{place}"] for place in range(len(arrays.files))]
        self._run.resume(self.model, note["epochs"], note["best_value"], best)
        self.model._initial_epoch = note["epochs"]

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves the epoch, if the last save is long enough ago."""
        if self._clock() - self._saved_at < self._seconds or self._run.ending[0] != "finished":
            return
        files.make_directory(self._directory)
        best = self._run.weights
        note = {
            "epochs": epoch + 1,
            "values": self._run.trial.hyperparameters.values,
            "weights": f"epoch-{epoch + 1}.weights.h5",
            "best": "" if best.is_latest else f"best-{epoch + 1}.npz",
            "best_value": best.value,
        }
        with files.replaced(self._directory / str(note["weights"]), keep_previous=False) as path:
            self.model.save_weights(path)
        if note["best"]:
            with files.replaced(self._directory / str(note["best"]), keep_previous=False) as path:
                np.savez(path, *best.values)
        files.write_json(self._directory / NOTE_FILE, note)
        current = {NOTE_FILE, note["weights"], note["best"]}
        for older in self._directory.iterdir():
            if older.name not in current:
                older.unlink()
        self._saved_at = self._clock()
