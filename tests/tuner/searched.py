"""A search as a user writes one for `keras-tpu-kit search`, which notes what it trains.

The environment says how it goes: where it is, how many trials and epochs there are, how long an
epoch takes, and what befalls it. TensorFlow is imported by those functions only that need it.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
from typing import Any

NOTES, HOLD, KILLED = "epochs.jsonl", "hold", "killed"


def folder() -> pathlib.Path:
    """Returns the directory of the search."""
    return pathlib.Path(os.environ["SEARCHED_DIRECTORY"])


def make_tuner() -> Any:
    """Returns a random search over a small model, and its data in one batch a step."""
    import keras
    import numpy as np

    import keras_tpu_kit as ktk

    def build(hp: Any) -> keras.Model:
        hidden = keras.layers.Dense(hp.Int("units", 2, 64), activation="tanh")
        model = keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(hp.Float("lr", 1e-3, 1e-1, sampling="log")), "mse")
        return model

    class Noted(ktk.RandomSearch):
        """Notes each epoch that was trained, before anybody else learns of it."""

        def on_epoch_end(
            self, trial: Any, model: keras.Model, epoch: int, logs: Any = None
        ) -> None:
            note(trial.trial_id, epoch, float(logs["loss"]))
            super().on_epoch_end(trial, model, epoch, logs=logs)

    tuner = Noted(
        build,
        "loss",
        max_trials=int(os.environ.get("SEARCHED_TRIALS", "3")),
        seed=1,
        directory=folder(),
        project_name="p[1]",
        strategy="cpu",
    )
    tuner.project.backup_seconds = float(os.environ.get("SEARCHED_BACKUP", "30"))
    x = np.random.default_rng(0).random((16, 3), dtype="float32")
    epochs = int(os.environ.get("SEARCHED_EPOCHS", "2"))
    # All rows in one batch, so that a trial comes to the same whatever their order.
    return tuner, {"x": x, "y": x.sum(1, keepdims=True), "batch_size": 16, "epochs": epochs}


def note(trial_id: str, epoch: int, loss: float) -> None:
    """Notes an epoch, takes its time, and dies in it where it was told to."""
    line = {
        "trial": trial_id,
        "epoch": epoch,
        "loss": loss,
        "by": os.environ.get("KERASTUNER_TUNER_ID", "alone"),
        "pid": os.getpid(),
    }
    with (folder() / NOTES).open("a") as file:
        file.write(json.dumps(line) + "\n")
    if (
        os.environ.get("SEARCHED_KILL") == f"{trial_id}:{epoch}"
        and not (folder() / KILLED).exists()
    ):
        (folder() / KILLED).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(os.environ.get("SEARCHED_PAUSE", "0")))
    while (folder() / HOLD).exists():
        time.sleep(0.05)


def broken() -> Any:
    """Has a mistake of the user's."""
    return {}["learning_rate"]


def broken_in_workers() -> Any:
    """Has one that only workers meet."""
    return broken() if os.environ["KERASTUNER_TUNER_ID"].startswith("worker") else make_tuner()


def slow() -> Any:
    """Takes longer than anybody waits."""
    time.sleep(600)


def main() -> None:
    """Searches in this process alone."""
    tuner, arguments = make_tuner()
    tuner.search(**arguments)


if __name__ == "__main__":
    main()
