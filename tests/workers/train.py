"""What each worker runs: a few epochs through the kit; then it says what its weights are.

Arguments: epochs, and the epoch in which worker 1 is to be killed (or -1).
"""

import os
import resource
import signal
import sys

import keras
import numpy as np

import keras_tpu_kit as ktk

epochs, fatal_epoch = int(sys.argv[1]), int(sys.argv[2])
strategy = ktk.detect_strategy(timeout=120)
topology = ktk.describe_strategy(strategy)
plan = ktk.plan_batches(topology, num_samples=64, global_batch_size=16)
draw = np.random.default_rng(0)
data = draw.normal(size=(64, 5)).astype("float32"), draw.normal(size=(64, 1)).astype("float32")


class Regression(ktk.ModelFactory):
    def build(self, hp):
        layer = keras.layers.Dense(1, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
        return keras.Sequential([keras.Input((5,)), layer])

    def compile_args(self, hp):
        return {"optimizer": keras.optimizers.SGD(0.05), "loss": "mse"}


class Fate(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        sys.stdout.write(f"epoch {epoch}\n")
        if epoch == fatal_epoch and topology.worker_index == 1:
            os.kill(os.getpid(), signal.SIGKILL)


model = Regression(strategy, plan).create()
train = ktk.make_dataset(data, plan, seed=3)
model.fit(train, epochs=epochs, verbose=0, callbacks=[Fate()], **plan.fit_args())
# As many that stay leave no free block of the size behind that would be taken instead.
held = [np.ones(1024 * 1024, "uint8") for _ in range(200)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    np.ones(1024 * 1024, "uint8")
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
sys.stdout.write(f"pages of 100 blocks of 1 MiB {after - before}\n")
sys.stdout.write(
    "weights " + " ".join(f"{value:.8f}" for value in model.get_weights()[0].ravel()) + "\n"
)
