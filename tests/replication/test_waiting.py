"""Waiting for input is the input's: a step that computes is not said to wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# One thread is where a step could begin before the clock was looked at a second time.
SCRIPT = """
import sys, time
import keras, numpy as np, tensorflow as tf
import keras_tpu_kit as ktk

seconds, units = float(sys.argv[1]), int(sys.argv[2])
x = np.ones((64, units), "float32")

def batches():
    for _ in range(16):
        time.sleep(seconds)
        yield x, x

spec = tf.TensorSpec(x.shape, "float32")
data = tf.data.Dataset.from_generator(batches, output_signature=(spec, spec))
data = data if seconds else tf.data.Dataset.from_tensors((x, x)).repeat(16)
layers = [keras.layers.Dense(units) for _ in range(4)]
model = keras.Sequential([keras.Input((units,)), *layers])
model.compile("sgd", "mse", steps_per_execution=4)
ktk.replicate(model)
monitor = ktk.ThroughputMonitor()
model.fit(data, epochs=2, verbose=0, callbacks=[monitor])
print("SHARE", monitor.throughput.input_wait_share)
"""


def wait_share(seconds, units, threads):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(seconds), str(units)],
        env={
            **os.environ,
            "TF_NUM_INTRAOP_THREADS": str(threads),
            "TF_NUM_INTEROP_THREADS": str(threads),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return float(done.stdout.rpartition("SHARE ")[2])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_that_computes_does_not_wait_and_one_without_data_does(threads):
    assert wait_share(0.0, 1024, threads) < 0.3
    assert wait_share(0.1, 8, threads) > 0.7
