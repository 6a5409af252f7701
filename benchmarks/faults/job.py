"""The training that `worker_kills.py` and `sigterms.py` disturb: small, seeded, resumable.

    python benchmarks/faults/job.py FOLDER --epochs 8 --save backup|preemption

With `backup` it saves at the end of each epoch (BackupAndRestore), with `preemption` when it is
told to stop (StopOnPreemption). Its last line is JSON: the epochs that are done, and the weights.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import keras
import numpy as np

import keras_tpu_kit as ktk

ROWS, FEATURES, BATCH = 512, 8, 16


class Regression(ktk.ModelFactory):
    """A model with everything that has to be saved: moments, moving statistics, random seeds."""

    def build(self, hp: Any) -> keras.Model:
        start = keras.initializers.GlorotUniform
        return keras.Sequential(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(32, activation="relu", kernel_initializer=start(seed=1)),
                keras.layers.BatchNormalization(),
                keras.layers.Dropout(0.1, seed=2),
                keras.layers.Dense(1, kernel_initializer=start(seed=3)),
            ]
        )

    def compile_args(self, hp: Any) -> dict[str, Any]:
        return {"optimizer": keras.optimizers.Adam(1e-3), "loss": "mse"}


class Say(keras.callbacks.Callback):
    """Says when an epoch begins, and remembers the last that ended."""

    def __init__(self) -> None:
        super().__init__()
        self.done = 0

    def on_train_begin(self, logs: Any = None) -> None:
        # What the backup, which comes first in the list, has restored.
        self.done = self.model._initial_epoch or 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        sys.stdout.write(f"epoch {epoch}\n")
        sys.stdout.flush()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.done = epoch + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--save", choices=("backup", "preemption"), required=True)
    args = parser.parse_args()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    strategy = ktk.detect_strategy(timeout=30)
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy),
        num_samples=ROWS,
        global_batch_size=BATCH,
        steps_per_execution=4,
    )
    draw = np.random.default_rng(0)
    data = tuple(draw.normal(size=(ROWS, n)).astype("float32") for n in (FEATURES, 1))
    model = Regression(strategy, plan).create()
    if args.save == "backup":
        saving = keras.callbacks.BackupAndRestore(f"{args.folder}/backup")
    else:
        saving = ktk.StopOnPreemption(f"{args.folder}/state")
    say = Say()
    model.fit(
        ktk.make_dataset(data, plan, seed=5),
        epochs=args.epochs,
        verbose=0,
        callbacks=[saving, say],
        **plan.fit_args(),
    )
    weights = np.concatenate([value.ravel() for value in model.get_weights()[:4]]).tolist()
    sys.stdout.write(json.dumps({"epochs": say.done, "weights": weights}) + "\n")


if __name__ == "__main__":
    main()
