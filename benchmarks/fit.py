"""Samples per second of plain Keras, of the kit, and of a training loop written by hand.

One model (784-128-10, Adam), one data set, batches of 128 and 1,200 rows, on one and on two
replicas. The contenders take turns; what counts is their ratio in each round.

    python benchmarks/fit.py --data mnist.npz --json fit.json

Without `--data` it trains on scikit-learn's digits, tiled to as many rows and columns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
import rich.console
import rich.table
from interleaving import Spread, interleaved_seconds, ratios

GOALS = {  # At least so many times the samples per second, on so many replicas and this batch.
    ("kit", "plain Keras", 1, 128): 1.8,
    ("kit", "hand-written loop", 1, 128): 0.90,
    ("kit", "hand-written loop", 1, 1200): 0.90,
    ("kit", "plain Keras", 2, 128): 1.6,
    ("kit", "plain Keras", 2, 1200): 1.6,
}

# On a machine that others use, only the time that this process's own threads worked compares.
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def load(path: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns 60,000 digits as rows of 784 floats in [0, 1], and their labels."""
    if path is not None:
        with np.load(path) as archive:
            x, y = archive["x_train"], archive["y_train"]
            return (x.reshape(len(x), -1) / np.float32(255)), y.astype(np.int32)
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    rows = np.arange(60_000) % len(x)
    return np.tile(x, (1, 13))[rows, :784].astype(np.float32) / 16, y[rows].astype(np.int32)


def contenders(
    x: np.ndarray, y: np.ndarray, *, replicas: int, batch: int, epochs: int
) -> dict[str, Any]:
    """Returns what to time, by name; each call trains `epochs` epochs."""
    import keras
    import tensorflow as tf

    import keras_tpu_kit as ktk

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    class Classifier(ktk.ModelFactory):
        def build(self, hp: Any) -> keras.Model:
            return keras.Sequential(
                [
                    keras.Input((784,)),
                    keras.layers.Dense(128, activation="relu"),
                    keras.layers.Dense(10),
                ]
            )

        def compile_args(self, hp: Any) -> dict[str, Any]:
            return {"optimizer": "adam", "loss": loss, "metrics": ["accuracy"]}

    strategy = ktk.detect_strategy(simulate=replicas)
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy), num_samples=len(x), global_batch_size=batch
    )
    factory = Classifier(strategy, plan)

    # Plain Keras as people write it: MirroredStrategy's own reduction, arrays, one step a call.
    plain_scope = (
        strategy
        if replicas == 1
        else tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
    )
    with plain_scope.scope():
        plain = factory.build(None)
        plain.compile(**factory.compile_args(None))

    model = factory.create()
    train = ktk.make_dataset((x, y), plan, seed=0)
    stock_on_kit_data = None
    if replicas == 1:
        stock_on_kit_data = factory.build(None)
        stock_on_kit_data.compile(**factory.compile_args(None))

    with strategy.scope():
        by_hand = factory.build(None)
        optimizer = keras.optimizers.Adam()
        optimizer.build(by_hand.trainable_variables)
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    iterator = iter(strategy.experimental_distribute_dataset(train))

    def step(batch_x: Any, batch_y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = by_hand(batch_x, training=True)
            value = loss(batch_y, logits) / replicas
        gradients = tape.gradient(value, by_hand.trainable_variables)
        optimizer.apply_gradients(zip(gradients, by_hand.trainable_variables, strict=True))
        accuracy.update_state(batch_y, logits)
        return value

    @tf.function
    def epoch(iterator: Any) -> Any:
        total = 0.0
        for _ in tf.range(plan.steps_per_epoch):
            values = strategy.run(step, next(iterator))
            total += strategy.reduce("SUM", values, axis=None)
        return total

    def loop() -> None:
        for _ in range(epochs):
            accuracy.reset_state()
            float(epoch(iterator)), float(accuracy.result())

    quiet = {"epochs": epochs, "verbose": 0}
    made = {
        "plain Keras": lambda: plain.fit(x, y, batch_size=batch, **quiet),
        "kit": lambda: model.fit(
            train, callbacks=ktk.plan_callbacks(plan, train), **plan.fit_args(), **quiet
        ),
        "hand-written loop": loop,
    }
    if stock_on_kit_data is not None:
        made["plain Keras, kit's dataset"] = lambda: stock_on_kit_data.fit(
            train, **plan.fit_args(), **quiet
        )
    return made


def measure(arguments: argparse.Namespace, replicas: int) -> list[dict[str, Any]]:
    """Returns one record a batch size and contender."""
    x, y = load(arguments.data)
    records = []
    for batch in arguments.batches:
        made = contenders(x, y, replicas=replicas, batch=batch, epochs=arguments.epochs)
        seconds = interleaved_seconds(made, rounds=arguments.rounds, clock=CLOCKS[arguments.clock])
        rows = len(x) * arguments.epochs
        for name, taken in seconds.items():
            records.append(
                {
                    "contender": name,
                    "replicas": replicas,
                    "batch": batch,
                    "samples_per_second": dataclasses.asdict(
                        Spread.of([rows / second for second in taken])
                    ),
                    "ratios": {
                        other: dataclasses.asdict(ratios(seconds[other], taken))
                        for other in seconds
                        if other != name
                    },
                }
            )
    return records


def show(records: list[dict[str, Any]]) -> None:
    """Prints the records as a table of ratios beside their goals."""
    table = rich.table.Table(
        "replicas",
        "batch",
        "contender",
        "thousand samples/s",
        "x plain Keras",
        "x hand-written",
        "goal",
    )
    for record in records:
        rate = record["samples_per_second"]
        key = record["contender"], record["replicas"], record["batch"]
        goals = [
            f"{goal:g} x {other}"
            for (name, other, replicas, batch), goal in GOALS.items()
            if (name, replicas, batch) == key
        ]
        table.add_row(
            str(record["replicas"]),
            str(record["batch"]),
            record["contender"],
            str(Spread(*(rate[part] / 1000 for part in ("median", "low", "high")))),
            *(
                str(Spread(**record["ratios"][other])) if other in record["ratios"] else ""
                for other in ("plain Keras", "hand-written loop")
            ),
            ", ".join(goals),
        )
    rich.console.Console(width=140).print(table)


def main() -> None:
    """Measures each number of replicas in a process of its own, then prints and saves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="mnist.npz with x_train and y_train")
    parser.add_argument("--json", default="fit.json", help="file to write (fit.json)")
    parser.add_argument("--batches", type=int, nargs="+", default=[128, 1200])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what a second is (wall)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs a round (3)")
    arguments = parser.parse_args()
    if len(arguments.replicas) == 1:
        records = measure(arguments, arguments.replicas[0])
    else:
        records = []
        for replicas in arguments.replicas:
            with tempfile.TemporaryDirectory() as folder:
                part = pathlib.Path(folder) / "part.json"
                own = [*sys.argv[1:], "--replicas", str(replicas), "--json", str(part)]
                subprocess.run([sys.executable, __file__, *own], check=True)
                records += json.loads(part.read_text())
    pathlib.Path(arguments.json).write_text(json.dumps(records, indent=2) + "\n")
    show(records)


if __name__ == "__main__":
    main()
