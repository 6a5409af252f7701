"""Trains a classifier of handwritten digits on every replica of this machine, in four steps."""

import argparse
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


class DigitClassifier(ktk.ModelFactory):
    """What the model is, and how it learns."""

    pixels = 784

    def build(self, hp):
        layers = [
            keras.Input((self.pixels,)),
            keras.layers.Dense(hp.Int("units", 32, 512, default=256), activation="relu"),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10),
        ]
        return keras.Sequential(layers)

    def compile_args(self, hp):
        return {
            "optimizer": keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-2, default=3e-3)),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": ["accuracy"],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="an mnist.npz file; default: the one in Keras's cache")
    parser.add_argument("--simulate", type=int, help="so many replicas on the CPU")
    args = parser.parse_args()
    keras.utils.set_random_seed(1)
    (x, y), (x_test, y_test) = load_data(args.data)
    is_mnist = len(x) == 60_000

    strategy = ktk.detect_strategy(simulate=args.simulate)  # 1. Which replicas answer?
    topology = ktk.describe_strategy(strategy)
    steps = 50 if is_mnist else 20  # 60,000 rows in 50 steps: 1,200 a step, none left over.
    plan = ktk.plan_batches(  # 2. Cut the data so that every division is even.
        topology, num_samples=len(x), steps_per_epoch=steps, num_validation_samples=len(x_test)
    )
    factory = DigitClassifier(strategy, plan)  # 3. Build the model where it will train.
    factory.pixels = x.shape[1]
    model = factory.create()
    train = ktk.make_dataset((x, y), plan, seed=1)  # 4. Train, watched by the kit's callbacks.
    test = ktk.make_dataset((x_test, y_test), plan, training=False)
    fit_args = plan.fit_args() | {"callbacks": ktk.plan_callbacks(plan, train), "verbose": 2}
    model.fit(train, epochs=6 if is_mnist else 30, **fit_args)

    accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
    print(f"{topology}: test accuracy {accuracy:.4f} on {len(x_test)} rows")
    assert accuracy >= (0.975 if is_mnist else 0.95), "The model should have learned more."


if __name__ == "__main__":
    main()
