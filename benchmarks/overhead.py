"""What the three callbacks cost a training step, beside Keras's TensorBoard callback.

    python benchmarks/overhead.py [--data mnist.npz] [--rounds 9] [--json overhead.json]

The MNIST job: an MLP 784-128-10 at batch 1,200, 50 steps an epoch, one replica by default. One
model is trained by turns with each set of callbacks and with none; what is added is the median
over the rounds of the difference to the same round without callbacks. Seconds spent inside the
hooks are counted apart: they have less noise, and leave out what a callback does to how `fit`
works.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from interleaving import interleaved_seconds

import keras_tpu_kit as ktk
from keras_tpu_kit import report

ROWS, BATCH = 60_000, 1_200
HOOKS = [name for name in dir(keras.callbacks.Callback) if name.startswith("on_")]


def main() -> None:
    """Measures, prints a table and saves it."""
    args = parse_args()
    strategy = ktk.detect_strategy(simulate=args.replicas)
    x, y = load(args.data)
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy),
        num_samples=len(x),
        global_batch_size=BATCH,
        steps_per_execution=1,
    )
    model = make_model(strategy, args.replicated)
    train = ktk.make_dataset((x, y), plan, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        contenders = {
            name: Contender(model, train, plan, make, args.epochs)
            for name, make in variants(plan, folder).items()
        }
        seconds = interleaved_seconds(contenders, rounds=args.rounds)
    hooks = {name: each.hook_seconds[-args.rounds :] for name, each in contenders.items()}
    figures = summarise(seconds, hooks, steps=plan.steps_per_epoch * args.epochs)
    report.show(table(figures))
    if args.json:
        args.json.write_text(json.dumps({"setting": setting(args), "figures": figures}, indent=2))


def variants(plan: ktk.BatchPlan, folder: str) -> dict[str, Callable[[], list[Any]]]:
    """Returns how each set of callbacks is made."""

    def board(update_freq: str) -> list[Any]:
        path = tempfile.mkdtemp(dir=folder)
        return [keras.callbacks.TensorBoard(path, update_freq=update_freq)]

    return {
        "no callbacks": list,
        "the kit's three": lambda: ktk.plan_callbacks(plan),
        "TensorBoard, each epoch": lambda: board("epoch"),
        "TensorBoard, each batch": lambda: board("batch"),
    }


class Contender:
    """Trains with new callbacks of one kind at each call, and notes the seconds in their hooks."""

    def __init__(
        self,
        model: keras.Model,
        train: tf.data.Dataset,
        plan: ktk.BatchPlan,
        make: Callable[[], list[Any]],
        epochs: int,
    ) -> None:
        self.hook_seconds: list[float] = []
        self._fit = functools.partial(model.fit, train, epochs=epochs, verbose=0, **plan.fit_args())
        self._make = make

    def __call__(self) -> None:
        """Trains once."""
        callbacks = self._make()
        spent = [time_hooks(callback) for callback in callbacks]
        self._fit(callbacks=callbacks)
        self.hook_seconds.append(sum(sum(each) for each in spent))


def time_hooks(callback: keras.callbacks.Callback) -> list[float]:
    """Makes a callback's own hooks note the seconds that they take, in the list returned.

    Keras is told nothing of it: hooks that a callback leaves as they are stay so, since `fit`
    looks at them to choose how it works.
    """
    spent: list[float] = []

    def timed(hook: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = hook(*args, **kwargs)
            spent.append(time.perf_counter() - start)
            return result

        return run

    for name in HOOKS:
        if getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name):
            setattr(callback, name, timed(getattr(callback, name)))
    return spent


def summarise(
    seconds: dict[str, list[float]], hooks: dict[str, list[float]], steps: int
) -> dict[str, dict[str, float]]:
    """Returns microseconds per step of each kind: in all, added, quartiles, inside the hooks."""
    each_step = {name: np.array(taken) / steps * 1e6 for name, taken in seconds.items()}
    bare = each_step["no callbacks"]
    step = float(np.median(bare))
    figures = {}
    for name, taken in each_step.items():
        low, added, high = np.percentile(taken - bare, (25, 50, 75))
        in_hooks = float(np.median(hooks[name])) / steps * 1e6
        figures[name] = {
            "step_us": float(np.median(taken)),
            "added_us": float(added),
            "added_us_q1": float(low),
            "added_us_q3": float(high),
            "added_share": float(added) / step,
            "hooks_us": in_hooks,
            "hooks_share": in_hooks / step,
        }
    return figures


def table(figures: dict[str, dict[str, float]]) -> Any:
    """Returns the figures as a table."""
    header = ("callbacks", "step", "added", "quartiles", "share", "in hooks", "of the step")
    rows = [
        (
            name,
            f"{each['step_us']:,.0f} µs",
            f"{each['added_us']:,.0f} µs",
            f"{each['added_us_q1']:,.0f} to {each['added_us_q3']:,.0f}",
            f"{each['added_share']:.1%}",
            f"{each['hooks_us']:,.1f} µs",
            f"{each['hooks_share']:.2%}",
        )
        for name, each in figures.items()
    ]
    return report.rows_table("Cost of callbacks per training step", header, rows)


def make_model(strategy: tf.distribute.Strategy, replicated: bool) -> keras.Model:
    """Returns the MNIST classifier of the demo."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((784,)),
                keras.layers.Dense(128, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, metrics=["accuracy"])
    return ktk.replicate(model) if replicated else model


def load(path: pathlib.Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns MNIST from a file, or random rows of its shape."""
    if path is None:
        generator = np.random.default_rng(1)
        return generator.random((ROWS, 784), "float32"), generator.integers(0, 10, ROWS)
    with np.load(path) as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    return x.reshape(len(x), 784).astype("float32") / 255, y.astype("int64")


def setting(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what the figures depend on."""
    return {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "data": args.data.name if args.data else "synthetic",
        "batch_size": BATCH,
        "replicas": args.replicas,
        "replicated_step": args.replicated,
        "rounds": args.rounds,
        "epochs": args.epochs,
    }


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="mnist.npz; random rows without")
    parser.add_argument("--replicas", type=int, default=1, help="simulated CPU replicas")
    parser.add_argument("--replicated", action="store_true", help="measure the kit's own step")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--epochs", type=int, default=2, help="epochs of a round, 50 steps each")
    parser.add_argument("--json", type=pathlib.Path, help="where to save the figures")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
