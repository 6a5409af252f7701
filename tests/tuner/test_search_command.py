"""`keras-tpu-kit search` as a user runs it: it ends, is stopped, goes on, leaves no process."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from tests.tuner import searched
from tests.tuner.commands import PATIENCE, crashes, ended, epochs, searching, trials

FOUR = {"SEARCHED_TRIALS": 4, "SEARCHED_EPOCHS": 3}
GOES_ON = "Every finished trial is kept, and the same command goes on from there."


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Returns the directory and the output of a search that nobody disturbed."""
    directory = tmp_path_factory.mktemp("undisturbed")
    with searching(directory, "--workers", "2", **FOUR) as command:
        assert command.end() == 0, command.output
        assert command.pids() == []
        return directory, command.output


@pytest.mark.slow
def test_two_workers_finish_every_trial_once_and_the_results_are_shown(undisturbed):
    directory, output = undisturbed
    found = trials(directory)
    assert sorted(found) == ["0", "1", "2", "3"]
    assert {status for _, status, _ in found.values()} == {"COMPLETED"}
    assert ended(directory) == dict.fromkeys(found, 1)
    noted = epochs(directory)
    assert sorted((each["trial"], each["epoch"]) for each in noted) == [
        (name, epoch) for name in sorted(found) for epoch in range(3)
    ]
    assert {each["by"] for each in noted} == {"worker0", "worker1"}
    for name, (values, _, score) in found.items():
        # What the worker saw, from its own notes: the chief got it as a 32-bit float.
        losses = [each["loss"] for each in noted if each["trial"] == name]
        assert score == pytest.approx(min(losses), rel=1e-6)
        assert f"trial {name} finished: loss={score:.5g}" in output
        assert f"units={values['units']}" in output
    assert "4/4 trials" in output
    table = output.partition("[chief] Trials ")[2]
    assert table.count("│ finished │") == 4, output
    assert "4 finished; " in table


@pytest.mark.slow
def test_stopped_by_ctrl_c_and_sigterm_it_leaves_no_process_and_goes_on(undisturbed, tmp_path):
    expected, _ = undisturbed
    stops = [
        ("Ctrl-C in a terminal", signal.SIGINT, True, 130),
        ("SIGINT to the command", signal.SIGINT, False, 130),
        ("SIGTERM to the command", signal.SIGTERM, False, 75),
    ]
    for stop, (name, number, to_group, code) in enumerate(stops):
        over, trained = ended(tmp_path), len(epochs(tmp_path))
        if stop == 2:
            (tmp_path / searched.HOLD).unlink()
        else:
            (tmp_path / searched.HOLD).touch()
        with searching(tmp_path, "--workers", "2", SEARCHED_PAUSE=0.3, **FOUR) as command:
            # Some trials are over at the last stop; before, the same are begun again and again.
            command.wait_until(lambda n=trained: len(epochs(tmp_path)) > n)
            if stop == 2:
                command.wait_until(lambda: sum(ended(tmp_path).values()) > 0)
            assert len(command.pids()) == 4
            assert command.send(number, to_group=to_group) == code, name
            assert command.pids() == [], name
            assert f"[search] {number.name}: the search stops. {GOES_ON}" in command.output
            assert "Traceback" not in command.output
        assert over <= ended(tmp_path)
        assert crashes(tmp_path) == {}, name
    over, before = ended(tmp_path), epochs(tmp_path)
    assert 0 < len(over) < 4
    with searching(tmp_path, "--workers", "2", **FOUR) as command:
        assert command.end() == 0, command.output
    assert ended(tmp_path) == dict.fromkeys(["0", "1", "2", "3"], 1)
    assert not {each["trial"] for each in epochs(tmp_path)[len(before) :]} & set(over)
    assert_equal(trials(tmp_path), trials(expected))


def assert_equal(found, expected):
    """Requires the same trials; sums over rows in another order may differ by their rounding."""
    assert found.keys() == expected.keys()
    for name, (values, status, score) in expected.items():
        assert found[name][:2] == (values, status)
        assert found[name][2] == pytest.approx(score, rel=1e-5)


def test_without_a_reader_of_its_output_it_still_stops_in_order(tmp_path):
    # As Ctrl-C ends the `tee` of `search | tee log` before the search has stopped.
    no_reader = "import os, sys; r, w = os.pipe(); os.dup2(w, 1); os.close(r); "
    no_reader += "os.execv(sys.argv[1], sys.argv[1:])"
    before = [sys.executable, "-c", no_reader]
    with searching(tmp_path, target="slow", before=before) as command:
        command.wait_until(lambda: len(command.pids()) == 2)
        assert command.send(signal.SIGINT) == 130, command.output
        assert command.pids() == []
    assert command.output == ""


def test_a_mistake_in_make_tuner_ends_it_with_its_traceback(tmp_path):
    with searching(tmp_path, "--workers", "2", target="broken") as command:
        assert command.end() == 1
        assert command.pids() == []
    assert 'return {}["learning_rate"]' in command.output
    assert "KeyError: 'learning_rate'" in command.output


@pytest.mark.slow
def test_a_mistake_that_workers_meet_ends_the_chief_as_well(tmp_path):
    with searching(tmp_path, "--workers", "2", target="broken_in_workers") as command:
        assert command.end() == 1
        assert command.pids() == []
    assert "KeyError: 'learning_rate'" in command.output
    assert trials(tmp_path) == {}


def test_a_command_that_is_killed_takes_its_processes_along(tmp_path):
    with searching(tmp_path, target="slow") as command:
        command.wait_until(lambda: len(command.pids()) == 2)
        assert command.send(signal.SIGKILL) == -signal.SIGKILL
        deadline = time.monotonic() + PATIENCE
        while command.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert command.pids() == []


def test_what_is_no_tuner_is_refused(tmp_path):
    with searching(tmp_path, target="folder") as command:
        assert command.end() == 2
    assert "[search-target]" in command.output
    assert "returned PosixPath" in command.output
