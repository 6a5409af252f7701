"""The command trains in processes of its own and says what it measured."""

import json

import pytest

from keras_tpu_kit.cli import main

TARGET = "tests/scaling/tiny_factory.py"


@pytest.mark.slow
def test_two_replicas_beside_one(tmp_path, capsys):
    code = main(
        [
            *("scale", f"{TARGET}:Tiny", "--replicas", "1,2", "--mode", "weak", "--rounds", "1"),
            *("--batch", "16", "--epochs", "2", "--plot", str(tmp_path / "scaling.png")),
            *("--json", str(tmp_path / "scaling.json")),
        ]
    )
    shown = capsys.readouterr().out
    assert code == 0
    assert "weak x2" in shown
    document = json.loads((tmp_path / "scaling.json").read_text())
    rates = [each["samples_per_second"] for each in document["measured"]]
    assert [each["global_batch_size"] for each in document["measured"]] == [16, 32]
    assert min(rates) > 0
    assert document["series"][1]["speedup"] == pytest.approx(rates[1] / rates[0])
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_target_that_is_no_factory_is_explained(tmp_path, capsys):
    code = main(["scale", f"{TARGET}:no_factory", "--plot", str(tmp_path / "no.png")])
    said = capsys.readouterr().err
    assert code == 2
    assert "scale-target" in said
    assert "not a ModelFactory" in said


@pytest.mark.slow
def test_a_training_of_one_execution_is_too_short(tmp_path, capsys):
    options = ["--rounds", "1", "--mode", "weak", "--epochs", "1", "--batch", "256"]
    code = main(["scale", f"{TARGET}:Tiny", *options, "--plot", str(tmp_path / "no.png")])
    assert code == 2
    assert "scale-too-short" in capsys.readouterr().err


def test_a_picture_without_a_folder_is_told_before_any_training(capsys):
    assert main(["scale", f"{TARGET}:Tiny", "--plot", "nowhere/scaling.png"]) == 2
    assert "mkdir -p" in capsys.readouterr().err


def test_counts_that_are_none_are_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["scale", f"{TARGET}:Tiny", "--replicas", "two"])
    assert caught.value.code == 2
    assert "no list of counts" in capsys.readouterr().err
