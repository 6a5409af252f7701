"""`keras-tpu-kit plan` needs no TensorFlow, says the numbers, and explains bad input."""

import json
import subprocess
import sys

import pytest

from keras_tpu_kit.cli import main

TUTORIAL = ["plan", "--accelerator", "tpu", "--replicas", "8", "--samples", "60000"]


def test_the_tutorial_s_numbers(capsys):
    assert main([*TUTORIAL, "--batch", "1200"]) == 0
    shown = capsys.readouterr().out
    rows = {
        line.split("│")[1].strip(): line.split("│")[2].strip()
        for line in shown.splitlines()
        if line.startswith("│")
    }
    assert rows["steps_per_epoch"] == "50"
    assert rows["per_replica_batch_size"] == "150"
    assert rows["dropped_samples"] == "0"


@pytest.mark.parametrize(
    "size", [["--per-replica-batch", "150"], ["--target-batch", "1190"], ["--steps", "50"]]
)
def test_json_says_the_same_for_every_way_to_say_the_size(size, capsys):
    assert main([*TUTORIAL, *size, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["steps_per_epoch"] == 50
    assert document["figures"]["global_batch_size"] == 1200
    assert document["plan"]["per_replica_batch_size"] == 150
    assert [finding["code"] for finding in document["findings"]] == ["tpu-batch-padding"]


def test_numbers_that_cannot_work_exit_with_2_and_one_message(capsys):
    assert main([*TUTORIAL, "--batch", "1201"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "global_batch_size=1200 or global_batch_size=1208" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "wrong", [["--batch", "many"], ["--batch", "8", "--steps", "3"], ["--accelerator", "npu"]]
)
def test_arguments_that_are_none_exit_with_2(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*TUTORIAL, *wrong])
    assert caught.value.code == 2
    assert "usage: keras-tpu-kit plan" in capsys.readouterr().err


def test_tensorflow_is_not_imported():
    code = (
        "import sys; from keras_tpu_kit.cli import main; "
        f"main({[*TUTORIAL, '--batch', '1200']!r}); "
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'keras', 'keras_tuner')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
