"""What TensorFlow hands to two real workers, against the batches of one device."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.datasets import make_dataset
from tests.datasets.plans import batches, plan_of

ROOT = pathlib.Path(__file__).parents[2]


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="module")
def read():
    """What each of two workers printed."""
    ports = free_ports(2)
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.datasets.worker", str(index), *ports],
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [json.loads(output.split("rows:")[1]) for output in outputs]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["arrays", "rows", "batches"])
def test_two_workers_train_and_validate_on_the_batches_of_one_device(read, kind):
    data = {
        "arrays": np.arange(40),
        "rows": tf.data.Dataset.range(40),
        "batches": tf.data.Dataset.range(40).batch(8),
    }[kind]
    (train, valid), (other_train, other_valid) = (worker[kind] for worker in read)
    expected = batches(make_dataset(data, plan_of(40, 8), seed=5), 10)
    np.testing.assert_array_equal(np.hstack([train, other_train]), expected)
    together = [a + b for a, b in zip(valid, other_valid, strict=True)]
    assert [len(batch) for batch in together] == [8, 8, 2, 1]
    np.testing.assert_array_equal(np.concatenate(together), np.arange(19))
