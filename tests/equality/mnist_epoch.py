"""Trains one epoch of handwritten digits on 1, 2, 4 and 8 replicas and prints the gaps as JSON.

    python -m tests.equality.mnist_epoch float64

MNIST is taken from the file that the variable MNIST_NPZ names, or from Keras's cache; else the
digits that come with scikit-learn stand in.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys


def main(dtype: str) -> None:
    """Prints `{"data": ..., "gaps": {"2": ..., "4": ..., "8": ...}}`."""
    import keras
    import numpy as np

    import keras_tpu_kit as ktk
    from keras_tpu_kit.cli.demo import load_digits_of
    from tests.replicas import replicas

    keras.config.set_floatx(dtype)
    path = os.environ.get("MNIST_NPZ")
    name, train, _ = load_digits_of(pathlib.Path(path) if path else None)

    class Mlp(ktk.ModelFactory):
        def build(self, hp):
            layers = [keras.Input(train[0].shape[1:]), keras.layers.Dense(128, "relu")]
            return keras.Sequential([*layers, keras.layers.Dense(10)])

        def compile_args(self, hp):
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            return {"optimizer": keras.optimizers.SGD(0.1), "loss": loss}

    def weights(count: int) -> list[np.ndarray]:
        run = Mlp(replicas(count)).fit(train, steps_per_epoch=50 if path else 20, seed=1, verbose=0)
        return run.model.get_weights()

    one = weights(1)
    gaps = {
        count: max(
            float(np.abs(a - b).max() / np.abs(a).max())
            for a, b in zip(one, weights(count), strict=True)
        )
        for count in (2, 4, 8)
    }
    sys.stdout.write(json.dumps({"data": name, "gaps": gaps}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
