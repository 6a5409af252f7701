"""Searches a classifier of handwritten digits, and tests the winner once."""

import argparse
import dataclasses
import pathlib

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_tpu_kit as ktk


def load_data(path):
    """Returns (x, y) to train on and (x, y) to test with: MNIST, or scikit-learn's digits."""
    path = pathlib.Path(path or "~/.keras/datasets/mnist.npz").expanduser()
    if path.exists():
        with np.load(path) as file:
            pairs = (file["x_train"], file["y_train"]), (file["x_test"], file["y_test"])
        return [((x.reshape(len(x), -1) / 255).astype("float32"), y) for x, y in pairs]
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = (x[order] / 16).astype("float32"), y[order]
    return (x[:1440], y[:1440]), (x[1440:], y[1440:])


def split(x, y, share=1 / 6):
    """Returns all but the last rows, and the last ones, on which trials are compared."""
    first = round(len(x) * (1 - share))
    return (x[:first], y[:first]), (x[first:], y[first:])


class DigitClassifier(ktk.ModelFactory):
    """What is searched: the model, how it learns, and the batch of one replica."""

    pixels = 784

    def build(self, hp):
        layers = [keras.Input((self.pixels,))]
        for layer in range(hp.Int("layers", 1, 2)):
            units = hp.Choice(f"units_{layer}", [64, 128, 256])
            layers.append(keras.layers.Dense(units, activation="relu"))
        layers.append(keras.layers.Dropout(hp.Float("dropout", 0.0, 0.4, step=0.1)))
        layers.append(keras.layers.Dense(10))
        return keras.Sequential(layers)

    def compile_args(self, hp):
        learning_rate = hp.Float("lr", 1e-4, 1e-2, sampling="log", default=1e-3)
        return {
            "optimizer": keras.optimizers.Adam(learning_rate),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": ["accuracy"],
        }

    def plan_for(self, hp):
        size = hp.Choice("per_replica_batch_size", [128, 256, 512])
        return dataclasses.replace(self.plan, per_replica_batch_size=size)


def make_tuner(pixels=784, trials=20, seed=1, prune=True, directory="searches", **options):
    """Returns a random search over the classifier."""
    factory = DigitClassifier()
    factory.pixels = pixels
    return ktk.RandomSearch(
        factory,
        objective="val_accuracy",
        max_trials=trials,
        seed=seed,
        pruner=ktk.MedianPruner(warmup_epochs=2) if prune else None,
        directory=directory,
        project_name=f"digits_{seed}",
        **options,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="an mnist.npz file; default: Keras's cache, if it is there")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-pruner", action="store_true", help="train every trial to its end")
    parser.add_argument("--directory", default="searches")
    args = parser.parse_args()

    train, test = load_data(args.data)
    train, validation = split(*train)
    tuner = make_tuner(
        train[0].shape[1], args.trials, args.seed, not args.no_pruner, args.directory
    )
    tuner.search(train, validation_data=validation, epochs=args.epochs)
    tuner.results_summary()
    tuner.plot("search.png")

    # The test rows are seen once, by the model that the validation rows chose.
    (best,) = tuner.get_best_models()
    _, accuracy = best.evaluate(*test, batch_size=1000, verbose=0)
    print(f"test accuracy {accuracy:.4f}")
    best.save("best.keras")


if __name__ == "__main__":
    main()
