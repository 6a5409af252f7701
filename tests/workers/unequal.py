"""What each worker runs: steps on batches that are three times as large on worker 0 as on worker 1.

Argument: whether the dataset of worker 1 tells the size of its batches (`told` or `untold`).
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_tpu_kit as ktk

ROWS = (12, 4)


def samples():
    """Returns inputs, shape `(16, 3)`, and targets, shape `(16, 1)`, of the one global batch."""
    draw = np.random.default_rng(0)
    return draw.normal(size=(16, 3)).astype("float32"), draw.normal(size=(16, 1)).astype("float32")


def own_rows(strategy, told):
    """Returns a dataset in which each worker repeats its own rows of the global batch."""

    def of_worker(context):
        index = context.input_pipeline_id
        rows = slice(0, ROWS[0]) if index == 0 else slice(ROWS[0], None)
        dataset = tf.data.Dataset.from_tensors(tuple(part[rows] for part in samples())).repeat()
        if index == 1 and not told:
            dataset = dataset.unbatch().batch(ROWS[1])
        return dataset

    return strategy.distribute_datasets_from_function(of_worker)


def main():
    strategy = ktk.detect_strategy(timeout=120)
    with strategy.scope():
        layer = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        model = keras.Sequential([keras.Input((3,)), layer])
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse", steps_per_execution=2)
    ktk.replicate(model)
    data = own_rows(strategy, told=sys.argv[1] == "told")
    history = model.fit(data, epochs=2, steps_per_epoch=4, verbose=0)
    told = {"weights": model.get_weights()[0].ravel().tolist(), "loss": history.history["loss"]}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
