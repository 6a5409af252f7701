"""`keras-tpu-kit demo`: the main job, on real handwritten digits."""

from __future__ import annotations

import argparse
import json
import pathlib
from typing import TYPE_CHECKING, Any

from keras_tpu_kit import backend, report
from keras_tpu_kit.errors import DataError, Finding

if TYPE_CHECKING:
    import numpy as np

    Digits = tuple[np.ndarray, np.ndarray]

SIMULATED_REPLICAS = 8
PICTURE, TENSORBOARD, MODEL, SUMMARY = "throughput.png", "tensorboard", "model.keras", "run.json"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declares the command's arguments."""
    parser = commands.add_parser(
        "demo",
        help="train on handwritten digits over all replicas, real or simulated",
        description="Trains a classifier of handwritten digits over the accelerators of this "
        "machine, or over simulated replicas where there are none; then evaluates and saves it. "
        "Without --data it takes MNIST from Keras's cache if it is there, else scikit-learn's "
        "digits, which need no network.",
    )
    parser.add_argument("--data", type=pathlib.Path, help="an mnist.npz file")
    parser.add_argument("--replicas", type=int, help="simulate so many replicas on the CPU")
    parser.add_argument("--epochs", type=int, help="default: 6 for MNIST, 20 for the digits")
    parser.add_argument("--batch", type=int, help="about how many rows a step takes")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("demo-run"), help="default: demo-run"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains, evaluates, saves, and returns 0."""
    backend.require_tensorflow()
    name, train, test = load_digits_of(args.data)
    is_mnist = len(train[0]) > 10_000
    epochs = args.epochs or (6 if is_mnist else 20)
    args.out.mkdir(parents=True, exist_ok=True)

    import keras

    import keras_tpu_kit as ktk

    factory = _classifier(_strategy(args.replicas), pixels=train[0].shape[1])
    job = factory.fit(
        train,
        validation_data=test,
        target_batch_size=args.batch or (1_200 if is_mnist else 72),
        epochs=epochs,
        seed=args.seed,
        callbacks=[keras.callbacks.TensorBoard(args.out / TENSORBOARD)],
        verbose=2,
    )
    evaluation = ktk.make_dataset(test, job.plan, training=False)
    figures = job.model.evaluate(evaluation, verbose=0, return_dict=True)
    job.model.save(args.out / MODEL)
    job.monitor.plot(args.out / PICTURE)
    summary = {
        "data": name,
        "plan": job.plan.to_dict(),
        "history": job.history.history,
        "test": figures,
        "throughput": job.throughput.to_dict(),
    }
    (args.out / SUMMARY).write_text(json.dumps(summary, indent=2))
    report.show(_results(args.out, name, len(test[0]), figures))
    return 0


def load_digits_of(path: pathlib.Path | None) -> tuple[str, Digits, Digits]:
    """Returns a name, training rows and test rows of handwritten digits.

    Rows are `(x, y)`: x of shape `(rows, pixels)`, float32 from 0 to 1; y of shape `(rows,)`,
    int32 from 0 to 9.

    Args:
        path: A file as Keras's `mnist.npz`, or `None` for what is found on this machine.

    Raises:
        DataError: If the file is missing or holds something else.
    """
    import numpy as np

    cached = backend.keras_home() / "datasets" / "mnist.npz"
    if path is None and not cached.exists():
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(x))
        x, y = (x[order] / 16).astype("float32"), y[order].astype("int32")
        # 1,440 rows divide over 8 replicas and batches of 72; the other 357 are the test.
        return "scikit-learn's digits", (x[:1440], y[:1440]), (x[1440:], y[1440:])
    path = path or cached
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(
            Finding(
                "demo-data",
                "error",
                what=f"{path} cannot be read as mnist.npz: {error}.",
                why="The demo needs the arrays x_train, y_train, x_test and y_test.",
                fix="Pass the file that keras.datasets.mnist keeps, or leave --data out for the "
                "digits that come with scikit-learn.",
            )
        ) from None

    def flat(x: Any) -> Any:
        return (x.reshape(len(x), -1) / np.float32(255)).astype("float32")

    return (
        "MNIST",
        (flat(arrays["x_train"]), arrays["y_train"].astype("int32")),
        (flat(arrays["x_test"]), arrays["y_test"].astype("int32")),
    )


def _strategy(replicas: int | None) -> Any:
    """Returns a strategy over the accelerators, or over simulated replicas where there are none."""
    import tensorflow as tf

    import keras_tpu_kit as ktk

    # Logical CPU devices can be made only before TensorFlow has started, so to try the hardware
    # first and simulate afterwards is not possible.
    may_have_tpu = "tensorflow-tpu" in backend.installed_wheels()
    if replicas is None and (may_have_tpu or tf.config.list_physical_devices("GPU")):
        return ktk.detect_strategy()
    return ktk.detect_strategy(simulate=replicas or SIMULATED_REPLICAS)


def _classifier(strategy: Any, pixels: int) -> Any:
    """Returns the factory of the demo's model: what it is, and how it learns."""
    import keras

    import keras_tpu_kit as ktk

    class DigitClassifier(ktk.ModelFactory):
        def build(self, hp: Any) -> keras.Model:
            units = hp.Int("units", 32, 512, default=512)
            return keras.Sequential(
                [
                    keras.Input((pixels,)),
                    keras.layers.Dense(units, activation="relu"),
                    keras.layers.Dropout(0.1),
                    keras.layers.Dense(10),
                ]
            )

        def compile_args(self, hp: Any) -> dict[str, Any]:
            rate = hp.Float("learning_rate", 1e-4, 1e-2, sampling="log", default=3e-3)
            return {
                "optimizer": keras.optimizers.Adam(rate),
                "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "metrics": ["accuracy"],
            }

    return DigitClassifier(strategy)


def _results(folder: pathlib.Path, name: str, rows: int, figures: dict[str, float]) -> Any:
    saved = {
        "test accuracy": (f"{figures['accuracy']:.4f}", f"on {rows} rows of {name}"),
        "test loss": (f"{figures['loss']:.4f}", "every row counted once"),
        "model": ("", str(folder / MODEL)),
        "throughput picture": ("", str(folder / PICTURE)),
        "TensorBoard": ("", f"tensorboard --logdir {folder / TENSORBOARD}"),
        "all figures": ("", str(folder / SUMMARY)),
    }
    return report.figures_table("Results", saved)
