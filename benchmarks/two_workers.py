"""What two workers reach of two trainings that know nothing of each other, and of a loop by hand.

    python benchmarks/two_workers.py --json two_workers.json

Each round trains benchmarks/small_cnn.py on one core alone, twice side by side without a
connection, on two workers, and on two workers with a loop written on TensorFlow's own strategy,
each process on a core of its own with one thread to compute.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import rich.console
import rich.table

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.processes import free_ports

KINDS = ("one alone", "two unrelated", "two workers", "two workers by hand")
BATCH, EPOCHS, STEPS = 64, 4, 16


def by_hand() -> Callable[[], None]:
    """Returns an epoch of a loop on TensorFlow's own strategy, over one batch in memory."""
    import keras
    import small_cnn
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    factory = small_cnn.SmallCnn(strategy)
    with strategy.scope():
        model = factory.build(None)
        optimizer = keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    (x, y), _ = factory.data()
    x, y = tf.constant(x[:BATCH]), tf.constant(y[:BATCH])

    def step() -> None:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True)) / strategy.num_replicas_in_sync
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    @tf.function
    def epoch() -> None:
        for _ in tf.range(STEPS):
            strategy.run(step)

    return epoch


def by_kit(ended: Callable[[], None]) -> None:
    """Trains through the kit, and tells the end of each epoch."""
    import keras
    import small_cnn

    import keras_tpu_kit as ktk

    workers = 2 if "TF_CONFIG" in os.environ else 1
    strategy = ktk.detect_strategy() if workers > 1 else ktk.detect_strategy(simulate=1)
    factory = small_cnn.SmallCnn(strategy)
    (x, y), _ = factory.data()
    rows = BATCH * workers * STEPS
    data = (np.resize(x, (rows, *x.shape[1:])), np.resize(y, rows))
    tells = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: ended())
    sizes = {"global_batch_size": BATCH * workers, "epochs": EPOCHS}
    factory.fit(data, seed=0, verbose=0, callbacks=[tells], **sizes)


def child(kind: str, processor: int) -> None:
    """Trains on one core and prints samples and processor seconds, the first epoch left out."""
    os.sched_setaffinity(0, [processor])
    clocks: list[tuple[float, float]] = []

    def ended() -> None:
        clocks.append((time.perf_counter(), time.process_time()))

    if kind == "two workers by hand":
        epoch = by_hand()
        for _ in range(EPOCHS):
            epoch()
            ended()
    else:
        by_kit(ended)
    (first, cpu_first), (last, cpu_last) = clocks[0], clocks[-1]
    steps = STEPS * (EPOCHS - 1)
    told = {
        "samples_per_second": steps * BATCH / (last - first),
        "step_ms": 1e3 * (last - first) / steps,
        "cpu_ms": 1e3 * (cpu_last - cpu_first) / steps,
    }
    sys.stdout.write(f"RESULT {json.dumps(told)}\n")
    sys.stdout.flush()
    os._exit(0)  # TensorFlow may wait for the other worker at exit.


def train(kind: str) -> dict[str, float]:
    """Returns the samples per second of all processes, and their mean milliseconds a step."""
    count = 1 if kind == "one alone" else 2
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(count))
    started = []
    for index in range(count):
        env = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_NUM_INTRAOP_THREADS": "1",
            "TF_NUM_INTEROP_THREADS": "1",
        }
        if kind.startswith("two workers"):
            env["TF_CONFIG"] = Cluster(addresses, index).to_tf_config()
        argv = [sys.executable, __file__, "--child", kind, str(index)]
        started.append(
            subprocess.Popen(
                argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    outputs = [process.communicate()[0] for process in started]
    for output in outputs:
        if "RESULT " not in output:
            raise RuntimeError(f"{kind}:\n{output}")
    told = [json.loads(output.rpartition("RESULT ")[2].splitlines()[0]) for output in outputs]
    return {
        "samples_per_second": sum(each["samples_per_second"] for each in told),
        "step_ms": statistics.mean(each["step_ms"] for each in told),
        "cpu_ms": statistics.mean(each["cpu_ms"] for each in told),
    }


def main() -> None:
    """Runs the rounds and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        child(arguments.child[0], int(arguments.child[1]))
    rounds = [{kind: train(kind) for kind in KINDS} for _ in range(arguments.rounds)]
    table = rich.table.Table(title=f"Medians of {arguments.rounds} rounds")
    for column in ("training", "samples/s", "range", "ms a step", "of them computing", "times one"):
        table.add_column(column)
    for kind in KINDS:
        rates = [each[kind]["samples_per_second"] for each in rounds]
        ratios = [
            each[kind]["samples_per_second"] / each["one alone"]["samples_per_second"]
            for each in rounds
        ]
        table.add_row(
            kind,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f} to {max(rates):,.0f}",
            f"{statistics.median(each[kind]['step_ms'] for each in rounds):.1f}",
            f"{statistics.median(each[kind]['cpu_ms'] for each in rounds):.1f}",
            f"{statistics.median(ratios):.2f}",
        )
    rich.console.Console(width=100).print(table)
    for other in ("two unrelated", "two workers by hand"):
        shares = [
            each["two workers"]["samples_per_second"] / each[other]["samples_per_second"]
            for each in rounds
        ]
        sys.stdout.write(f"Two workers reach {statistics.median(shares):.2f} of {other}.\n")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
