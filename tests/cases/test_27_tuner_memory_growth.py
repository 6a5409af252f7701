"""Every trial leaves some memory behind (keras-tuner#395, #873, #1031): workers are replaced."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

MODULE = """
import keras
import numpy as np
import keras_tpu_kit as ktk

def build(hp):
    layers = [keras.layers.Dense(64, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-1)), "mse")
    return model

def make_tuner():
    x = np.random.default_rng(0).random((32, 8), dtype="float32")
    tuner = ktk.RandomSearch(build, "loss", max_trials=5, seed=1, strategy="cpu", directory="d")
    return tuner, {"x": x, "y": x[:, :1], "batch_size": 16, "epochs": 1, "callbacks": [Tell()]}

class Tell(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        import os
        print("trained by", os.getpid(), flush=True)
"""


@pytest.mark.slow
def test_no_process_trains_more_trials_than_it_may_and_none_is_lost(tmp_path):
    (tmp_path / "growing.py").write_text(MODULE)
    folder = os.pathsep.join([str(pathlib.Path.cwd()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "keras_tpu_kit", "search", "growing:make_tuner"]
    search = subprocess.run(
        [*command, "--workers", "1", "--trials-per-worker", "2"],
        env={**os.environ, "PYTHONPATH": folder, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert search.returncode == 0, search.stdout + search.stderr
    processes = re.findall(r"trained by (\d+)", search.stdout)
    assert len(processes) == 5
    assert [processes.count(each) for each in dict.fromkeys(processes)] == [2, 2, 1]
    journal = (tmp_path / "d" / "untitled_project" / "trials.jsonl").read_text()
    assert journal.count('"COMPLETED"') == 5
