"""A trial whose process is killed goes on after the last epoch that it had saved."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from keras_tpu_kit.tuner.project.project import BACKUP_DIRECTORY
from tests.tuner import searched
from tests.tuner.commands import ROOT, Running, ended, epochs, trials

SIX = {"SEARCHED_TRIALS": 2, "SEARCHED_EPOCHS": 6}


def search(directory, **variables):
    """Searches in one process, and returns how it ended."""
    argv = [sys.executable, str(ROOT / searched.__file__)]
    with Running(argv, directory, {**SIX, **variables}) as running:
        code = running.end()
        assert code in (0, -signal.SIGKILL), running.output
        return code


def history(directory, trial):
    """Returns the loss of each epoch that the project knows of a trial."""
    state = json.loads((directory / "p[1]" / f"trial_{trial}" / "trial.json").read_text())
    (direction, observations) = (
        state["metrics"]["metrics"]["loss"][key] for key in ("direction", "observations")
    )
    assert direction == "min"
    return {each["step"]: each["value"][0] for each in observations}


@pytest.mark.slow
def test_after_sigkill_a_trial_goes_on_after_its_last_saved_epoch(tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for directory in (whole, broken):
        directory.mkdir()
    for name, value in {**SIX, "SEARCHED_DIRECTORY": whole}.items():
        monkeypatch.setenv(name, str(value))
    searched.main()
    # It dies in its fifth epoch, before anybody has learned of that.
    dying = {"SEARCHED_BACKUP": 0, "SEARCHED_KILL": "1:4"}
    assert search(broken, **dying) == -signal.SIGKILL
    first = [each for each in epochs(broken) if each["trial"] == "1"]
    assert [each["epoch"] for each in first] == [0, 1, 2, 3, 4]
    saved = json.loads((broken / "p[1]" / "trial_1" / BACKUP_DIRECTORY / "epoch.json").read_text())
    assert saved["epochs"] == 4

    assert search(broken, **dying) == 0
    again = [each for each in epochs(broken) if each["pid"] != first[0]["pid"]]
    assert [(each["trial"], each["epoch"]) for each in again] == [("1", 4), ("1", 5)]
    expected = {each["epoch"]: each["loss"] for each in epochs(whole) if each["trial"] == "1"}
    kept = history(broken, "1")
    assert {epoch: kept[epoch] for epoch in range(4)} == {
        each["epoch"]: each["loss"] for each in first[:4]
    }
    # Weights and Adam's state were those of a trial that nobody broke off.
    assert kept == pytest.approx(expected, rel=1e-4)
    found, undisturbed = trials(broken), trials(whole)
    assert found["1"][:2] == undisturbed["1"][:2]
    assert found["1"][2] == pytest.approx(undisturbed["1"][2], rel=1e-4)
    assert ended(broken) == {"0": 1, "1": 1}
    assert not list(broken.rglob(BACKUP_DIRECTORY)), "what was saved of it is not needed any more"
