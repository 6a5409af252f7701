"""Devices that do not exist: a clear error at once that lists those that do.

Stock TensorFlow accepts them and blocks for ever while the model is built.
"""

import pytest

import keras_tpu_kit as ktk
from keras_tpu_kit.strategy import detection
from tests.replicas import replicas


@pytest.fixture(autouse=True)
def nothing_served(monkeypatch):
    replicas(2)
    monkeypatch.setattr(detection, "_served", [])
    monkeypatch.delenv("TPU_NAME", raising=False)


def test_gpus_that_do_not_exist():
    with pytest.raises(ktk.HardwareError) as caught:
        ktk.detect_strategy(devices=["GPU:0", "GPU:1"])
    assert "GPU:0, GPU:1 is not here" in str(caught.value)
    assert "CPU:0, CPU:1" in caught.value.finding.why


def test_gpus_that_were_hoped_for():
    with pytest.raises(ktk.HardwareError, match="TensorFlow sees no GPU"):
        ktk.detect_strategy("gpu")


def test_a_tpu_that_was_hoped_for():
    with pytest.raises(ktk.HardwareError, match="no TPU chip"):
        ktk.detect_strategy("tpu")


def test_a_tpu_without_kernels():
    with pytest.raises(ktk.HardwareError, match="ConfigureDistributedTPU"):
        ktk.detect_strategy(tpu="local")


def test_more_logical_devices_after_tensorflow_has_started():
    with pytest.raises(ktk.HardwareError, match="Restart the runtime"):
        ktk.detect_strategy(simulate=16)
