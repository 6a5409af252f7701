"""What each worker runs: a model whose BatchNormalization sees this worker's rows only.

Argument: a folder for the saved model. Prints one line of JSON: the worker's rows of the first
step, its moving statistics after that step and after training, what the trained model and the
saved one evaluate to, and what TensorFlow says is the mean of a variable over the workers.
"""

import json
import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import keras_tpu_kit as ktk

strategy = ktk.detect_strategy(timeout=120)
topology = ktk.describe_strategy(strategy)
plan = ktk.plan_batches(topology, num_samples=64, global_batch_size=16)
draw = np.random.default_rng(0)
x = draw.normal(2.0, 3.0, size=(64, 3)).astype("float32")
y = draw.normal(size=(64, 1)).astype("float32")


class Normalized(ktk.ModelFactory):
    def build(self, hp):
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        )

    def compile_args(self, hp):
        return {"optimizer": keras.optimizers.SGD(0.01), "loss": "mse"}


def statistics():
    layer = model.layers[0]
    return [layer.moving_mean.numpy().tolist(), layer.moving_variance.numpy().tolist()]


keras.utils.set_random_seed(5)
first = tf.data.Dataset.from_tensor_slices((x[:16], y[:16])).batch(16)
model = Normalized(strategy, plan).create()
rows, _ = next(iter(strategy.experimental_distribute_dataset(first)))
told = {"rows": np.asarray(strategy.experimental_local_results(rows)[0]).tolist()}
model.steps_per_execution = 1
model.fit(first, steps_per_epoch=1, verbose=0, shuffle=False)
told["one step"] = statistics()
model.steps_per_execution, model.train_function = plan.steps_per_execution, None
train = ktk.make_dataset((x, y), plan, seed=3)
model.fit(train, epochs=2, verbose=0, **plan.fit_args())
told["trained"] = statistics()
told["evaluated"] = model.evaluate(x, y, batch_size=16, verbose=0)
path = pathlib.Path(sys.argv[1], f"{topology.worker_index}.keras")
model.save(path)
told["loaded"] = keras.saving.load_model(path).evaluate(x, y, batch_size=16, verbose=0)
with strategy.scope():
    own = tf.Variable(0.0)
own.assign(float(topology.worker_index))
told["mean"] = float(strategy.reduce(tf.distribute.ReduceOp.MEAN, own, axis=None))
sys.stdout.write(json.dumps(told) + "\n")
