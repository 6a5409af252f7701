"""`keras-tpu-kit doctor` says what is here, and exits with 1 where training would fail."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "keras_tpu_kit", "doctor", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def codes(document: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in document["findings"]}


def test_it_tells_versions_and_devices_and_that_all_is_well():
    done = doctor("--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    for package in ("keras", "keras-tuner", "numpy"):
        assert document["installation"]["packages"][package] == importlib.metadata.version(package)
    assert any("CPU" in device for device in document["installation"]["devices"])
    assert not {finding["severity"] for finding in document["findings"]} & {"error"}
    assert document["self_test"] is None


def test_another_backend_and_an_old_keras_fail_with_the_cure():
    done = doctor("--json", KERAS_BACKEND="jax", TF_USE_LEGACY_KERAS="1")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert {"keras-backend", "legacy-keras"} <= codes(document)
    assert document["installation"]["variables"]["KERAS_BACKEND"] == "jax"
    text = doctor(KERAS_BACKEND="jax", TF_USE_LEGACY_KERAS="1").stdout
    assert "KERAS_BACKEND=" in text
    assert "Traceback" not in text


def test_plain_tensorflow_over_the_tpu_s_wheel_is_named(tmp_path):
    # What an installation leaves that put tensorflow over tensorflow-tpu: both are recorded.
    record = tmp_path / "tensorflow_tpu-2.19.1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow-tpu\nVersion: 2.19.1\n"
    )
    (record / "top_level.txt").write_text("tensorflow\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = doctor("--json", PYTHONPATH=path)
    assert done.returncode == 1
    assert "tensorflow-over-tpu" in codes(json.loads(done.stdout))


def test_a_tensorflow_that_does_not_answer_ends_within_the_limit():
    done = doctor("--json", "--timeout", "0.1")
    assert done.returncode == 1
    assert "tensorflow-hangs" in codes(json.loads(done.stdout))


def test_bad_input_exits_with_2_and_no_traceback():
    done = doctor("--timeout", "soon")
    assert done.returncode == 2
    assert "--timeout" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_self_test_trains_on_two_replicas_as_on_one_device():
    done = doctor("--self-test", "--json", CUDA_VISIBLE_DEVICES="-1")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout
    figures = document["self_test"]
    assert figures["num_replicas"] == 2
    assert figures["result"] == "as one device"
    assert figures["gap_to_one_device"] <= 1e-4
    # Four well-separated clouds: a model that trains at all tells them apart.
    assert figures["accuracy"] >= 0.95


@pytest.mark.slow
def test_the_report_to_paste_has_no_need_of_json():
    done = doctor("--self-test", CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 0, done.stdout
    for told in ("Installation", "Self-test", "gap to one device", "as one device"):
        assert told in done.stdout


def test_the_package_can_be_run_as_a_module_from_any_folder(tmp_path):
    root = pathlib.Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "keras_tpu_kit", "doctor", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "--self-test" in done.stdout
