"""A training that sends itself SIGTERM at a given moment; run as a script.

    python -m tests.callbacks.preempted FOLDER MOMENT [--replicas] [--replicated] [--fused]
        [--arrays] [--initial-step] [--workers]

MOMENT is `never` or `EPOCH:BATCH` (before this batch), `EPOCH:validation`, `EPOCH:end`. The weights
and the history are written to FOLDER when training is done.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.replicas import replicas

EPOCHS = 3


class SendSignal(keras.callbacks.Callback):
    """Sends SIGTERM to its own process at one moment."""

    def __init__(self, moment: str) -> None:
        super().__init__()
        self.at_epoch, _, self.at = moment.partition(":")
        self.epoch = "-1"

    def _send(self, now: str) -> None:
        if (self.at_epoch, self.at) == (self.epoch, now):
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = str(epoch)

    def on_train_batch_begin(self, batch, logs=None):
        self._send(str(batch))

    def on_test_batch_begin(self, batch, logs=None):
        self._send("validation")

    def on_epoch_end(self, epoch, logs=None):
        self._send("end")


def strategy_of(options: Sequence[str]) -> tf.distribute.Strategy:
    """Returns the strategy that the options name; workers read TF_CONFIG."""
    if "--workers" in options:
        return tf.distribute.MultiWorkerMirroredStrategy()
    return replicas(2) if "--replicas" in options else tf.distribute.OneDeviceStrategy("/cpu:0")


def main(folder: pathlib.Path, moment: str, *options: str) -> None:
    """Trains, goes on from a saved state, or stops."""
    strategy = strategy_of(options)
    keras.utils.set_random_seed(7)
    generator = np.random.default_rng(1)
    x = generator.random((64, 3), dtype="float32")
    y = x.sum(axis=1, keepdims=True)
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy),
        num_samples=64,
        global_batch_size=8,
        num_validation_samples=16,
        steps_per_execution=2 if "--fused" in options else 1,
    )
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dropout(0.2),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"], steps_per_execution=plan.steps_per_execution)
    if "--replicated" in options:
        ktk.replicate(model, plan)
    stop = ktk.StopOnPreemption(folder / "backup", skip_input="--initial-step" not in options)
    if "--arrays" in options:
        data = {"x": x, "y": y, "batch_size": 8}
    else:
        first = stop.initial_step if "--initial-step" in options else 0
        data = {"x": ktk.make_dataset((x, y), plan, seed=5, initial_step=first), **plan.fit_args()}
    history = model.fit(
        **data | {"shuffle": False},
        epochs=EPOCHS,
        validation_data=ktk.make_dataset((x[:16], y[:16]), plan, training=False),
        verbose=0,
        callbacks=[*ktk.plan_callbacks(plan), stop, SendSignal(moment)],
    )
    if not plan.topology.is_chief:
        folder = folder / "worker"
        folder.mkdir(exist_ok=True)
    np.savez(
        folder / "weights.npz",
        *model.get_weights(),
        *map(keras.ops.convert_to_numpy, model.optimizer.variables),
    )
    losses = {name: values for name, values in history.history.items() if "second" not in name}
    (folder / "history.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *sys.argv[2:])
