"""The main job, as a user runs it; every printed number agrees with the saved ones."""

import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_tpu_kit import DataError
from keras_tpu_kit.cli.demo import load_digits_of


@pytest.mark.slow
def test_the_demo_learns_the_digits_over_8_replicas_and_tells_the_truth(tmp_path, monkeypatch):
    # A Keras home without MNIST: the digits of scikit-learn are then what it takes.
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    done = subprocess.run(
        [sys.executable, "-m", "keras_tpu_kit", "demo", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    saved = json.loads((tmp_path / "run" / "run.json").read_text())
    assert saved["data"] == "scikit-learn's digits"
    assert saved["plan"]["topology"]["num_replicas"] == 8
    assert saved["test"]["accuracy"] >= 0.95
    assert f"{saved['test']['accuracy']:.4f}" in done.stdout
    printed = [float(x) for x in re.findall(r"val_accuracy: ([0-9.]+)", done.stdout)]
    np.testing.assert_allclose(printed, saved["history"]["val_accuracy"], atol=5e-5)
    assert f"{saved['throughput']['samples_per_second']:,.0f}" in done.stdout
    for name in ("throughput.png", "model.keras", "tensorboard"):
        assert (tmp_path / "run" / name).exists()

    _, _, (x, y) = load_digits_of(None)
    model = keras.saving.load_model(tmp_path / "run" / "model.keras")
    predicted = model.predict(x, verbose=0).argmax(axis=1)
    assert float((predicted == y).mean()) == pytest.approx(saved["test"]["accuracy"], abs=1e-6)


@pytest.mark.parametrize("content", [None, b"", b"no zip file", "arrays"])
def test_a_file_that_is_no_mnist_is_explained(tmp_path, content):
    path = tmp_path / "mnist.npz"
    if content == "arrays":
        np.savez(path, x=np.zeros(3))
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        load_digits_of(path)
    assert caught.value.finding.code == "demo-data"
    assert str(path) in str(caught.value)


def test_mnist_is_flat_scaled_and_whole(tmp_path):
    path = tmp_path / "mnist.npz"
    images = np.arange(2 * 28 * 28, dtype="uint8").reshape(2, 28, 28)
    labels = np.array([3, 7], "uint8")
    np.savez(path, x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    name, (x, y), (x_test, y_test) = load_digits_of(path)
    assert name == "MNIST"
    np.testing.assert_allclose(x, images.reshape(2, 784) / 255, rtol=1e-6)
    assert x.dtype == np.float32
    assert y.tolist() == [3, 7]
    assert (x_test.shape, y_test.tolist()) == ((1, 784), [3])
