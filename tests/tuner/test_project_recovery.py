"""A project opens again whatever befell it, with every finished trial, each once."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import time

import keras
import keras_tuner
import numpy as np
import pytest

import keras_tpu_kit as ktk
from keras_tpu_kit.errors import SearchError
from keras_tpu_kit.tuner.project import Project, SearchStopped
from keras_tpu_kit.tuner.project.durable import MAX_CRASHES, durable
from tests.tuner.trials import KINDS, OBJECTIVE, oracle, run, trials_of


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def opened(directory, kind, **options):
    """Returns an oracle that goes on with a project, and what was said of its files."""
    project = Project(directory, "p[1]", oracle(kind, **options))
    project.prepare()
    return project.oracle, project.oracle.begin()


def journal(directory):
    lines = (directory / "p[1]" / "trials.jsonl").read_text().splitlines()
    return sorted(json.loads(line)["trial_id"] for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_between_any_two_writes_loses_and_repeats_no_trial(kind, tmp_path, monkeypatch):
    expected = run(tmp_path / "undisturbed", kind)
    replace = pathlib.Path.replace
    writes, fatal = 0, None

    def counts(self, target):
        nonlocal writes
        writes += 1
        if writes == fatal:
            raise Killed
        return replace(self, target)

    monkeypatch.setattr(pathlib.Path, "replace", counts)
    run(tmp_path / "counted", kind)
    # Prime to the number of writes of a trial, so that each kind of write is met.
    for fatal in range(1, writes, 11 if kind == "bayesian" else 5):
        directory = tmp_path / str(fatal)
        writes = 0
        with contextlib.suppress(Killed):
            run(directory, kind)
        assert run(directory, kind) == expected, f"killed before write {fatal}"
        assert journal(directory) == sorted(expected), f"killed before write {fatal}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_without_its_oracle_file_goes_on_from_its_trials(kind, tmp_path):
    expected = run(tmp_path / "undisturbed", kind)
    run(tmp_path, kind, most=3)
    for name in ("oracle.json", "oracle.json.previous"):
        (tmp_path / "p[1]" / name).unlink()
    _, findings = opened(tmp_path, kind)
    assert [finding.code for finding in findings] == ["project-repaired"]
    assert "rebuilt from the files of 3 trials" in findings[0].why
    assert run(tmp_path, kind) == expected


@pytest.mark.parametrize("name", ["oracle.json", "trial_1/trial.json", "tuner0.json"])
@pytest.mark.parametrize("kept", [None, 0, 0.5])
def test_a_damaged_file_is_repaired_from_what_is_left(name, kept, tmp_path):
    expected = run(tmp_path / "undisturbed", "random")
    run(tmp_path, "random", most=3)
    path = tmp_path / "p[1]" / name
    if name == "tuner0.json":
        path.write_text("{}")
    if kept is None:
        path.unlink()
    else:
        os.truncate(path, int(path.stat().st_size * kept))
    _, findings = opened(tmp_path, "random")
    said = [finding.what for finding in findings]
    assert said == [] if name == "tuner0.json" else name in said[0]
    assert run(tmp_path, "random") == expected
    assert json.loads(path.read_text()) is not None  # Whole for other readers, too.
    assert opened(tmp_path, "random")[1] == []


def test_a_trial_whose_directory_is_gone_keeps_values_and_score(tmp_path):
    expected = run(tmp_path, "random")
    shutil.rmtree(tmp_path / "p[1]" / "trial_2")
    searched, findings = opened(tmp_path, "random")
    assert "from trials.jsonl" in findings[0].why
    assert trials_of(searched) == expected
    assert run(tmp_path, "random") == expected
    assert opened(tmp_path, "random")[1] == []


def test_a_trial_of_which_nothing_is_left_counts_as_failed_and_its_name_is_not_given_again(
    tmp_path,
):
    expected = run(tmp_path, "random", most=3)
    shutil.rmtree(tmp_path / "p[1]" / "trial_1")
    (tmp_path / "p[1]" / "trials.jsonl").unlink()
    found = run(tmp_path, "random")
    assert found.pop("1")[1:] == ("FAILED", None)
    expected.pop("1")
    assert {name: found[name] for name in expected} == expected
    assert sorted(found) == ["0", "2", "3", "4"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_trial_that_kills_its_process_three_times_is_failed_and_the_search_goes_on(
    kind, tmp_path
):
    run(tmp_path, kind, most=1)
    for _ in range(MAX_CRASHES):
        searched, _ = opened(tmp_path, kind)
        assert searched.create_trial("tuner0").trial_id.lstrip("0") == "1"
    found = run(tmp_path, kind)
    failed = [name for name, trial in found.items() if trial[1] == "FAILED"]
    assert [name.lstrip("0") for name in failed] == ["1"]
    assert len(found) > 2


def test_a_search_that_was_told_to_stop_does_not_count_against_its_trial(tmp_path):
    for _ in range(MAX_CRASHES + 1):
        project = Project(tmp_path, "p[1]", oracle("random"))
        project.prepare()
        with pytest.raises(SearchStopped) as caught, project.searching(None):
            project.on_space_known()
            assert project.oracle.create_trial("tuner0").trial_id == "0"
            os.kill(os.getpid(), signal.SIGTERM)
        assert caught.value.code == 75
    assert all(trial[1] == "COMPLETED" for trial in run(tmp_path, "random").values())


def test_a_training_that_failed_before_does_not_keep_a_search_from_hearing_that_it_shall_stop(
    tmp_path,
):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def fail(epoch, logs=None):
        raise ZeroDivisionError

    for attempt in range(2):
        stop = ktk.StopOnPreemption(tmp_path / f"backup{attempt}")
        fails = keras.callbacks.LambdaCallback(on_epoch_begin=fail)
        with pytest.raises(ZeroDivisionError):
            model.fit(np.ones((8, 3)), np.ones(8), verbose=0, callbacks=[stop, fails])
    project = Project(tmp_path, "p[1]", oracle("random"))
    project.prepare()
    with pytest.raises(SearchStopped), project.searching(None):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_error_before_a_search_has_taken_over_leaves_the_crash_before_it_counted(tmp_path):
    run(tmp_path, "random", most=1)
    for _ in range(MAX_CRASHES):
        searched, _ = opened(tmp_path, "random")
        assert searched.create_trial("tuner0").trial_id == "1"
        project = Project(tmp_path, "p[1]", oracle("random"))
        project.prepare()
        with pytest.raises(ValueError, match="typo"), project.searching(None):
            raise ValueError("typo")
    assert run(tmp_path, "random")["1"][1] == "FAILED"


def test_the_end_of_an_earlier_search_is_not_that_of_this_one(tmp_path):
    project = Project(tmp_path, "p[1]", oracle("random"))
    project.prepare()
    begun = time.time() - 1
    with project.searching(None):
        project.on_space_known()
        project.on_search_end()
    assert project.is_over() and project.is_over(begun)
    assert not project.is_over(time.time() + 60)
    with project.searching(None):
        assert not project.is_over()


def test_a_stop_waits_until_the_state_is_whole(tmp_path, monkeypatch):
    project = Project(tmp_path, "p[1]", oracle("random"))
    project.prepare()
    with pytest.raises(SearchStopped), project.searching(None):
        project.on_space_known()
        with project.oracle.alone():
            os.kill(os.getpid(), signal.SIGTERM)
            project.oracle.create_trial("tuner0")
        pytest.fail("the stop came too late")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    searched, _ = opened(tmp_path, "random")
    assert list(searched.trials) == ["0"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"objective": keras_tuner.Objective("loss", "min")}, "objective was"),
        ({"objective": keras_tuner.Objective("score", "min")}, 'direction="max"'),
    ],
)
def test_another_objective_is_refused(tmp_path, changes, says):
    run(tmp_path, "random", most=1)
    with pytest.raises(SearchError, match=says) as caught:
        opened(tmp_path, "random", **changes)
    assert caught.value.finding.code == "search-changed"
    assert "overwrite=True" in caught.value.finding.fix


def test_another_range_a_new_and_a_missing_hyperparameter_are_refused_by_name(tmp_path):
    run(tmp_path, "random", most=1)
    changed = keras_tuner.HyperParameters()
    changed.Choice("a", [1, 2, 3])
    changed.Float("c", 0.0, 2.0)
    changed.Boolean("d")
    with pytest.raises(SearchError) as caught:
        opened(tmp_path, "random", hyperparameters=changed)
    what = caught.value.finding.what
    assert "b is gone" in what and "d is new" in what
    assert "max_value=1.0" in what and "max_value=2.0" in what
    assert "hyperparameter a" not in what
    assert len(trials_of(opened(tmp_path, "random")[0])) == 1, "the project is as it was"


def test_another_algorithm_or_setting_is_refused(tmp_path):
    run(tmp_path, "random", most=1)
    with pytest.raises(SearchError, match="oracle was RandomSearchOracle, is Bayesian"):
        opened(tmp_path, "bayesian")
    run(tmp_path / "h", "hyperband", most=1)
    with pytest.raises(SearchError, match="max_epochs was 4, is 8"):
        opened(tmp_path / "h", "hyperband", max_epochs=8)


@pytest.mark.parametrize("kind", ["random", "grid", "bayesian"])
def test_a_finished_search_is_extended(kind, tmp_path):
    short = run(tmp_path, kind, max_trials=4)
    assert len(short) == 4
    longer = run(tmp_path, kind, max_trials=6)
    assert len(longer) == 6
    assert {name: longer[name] for name in short} == short
    assert longer == run(tmp_path / "at once", kind, max_trials=6)


def test_a_finished_hyperband_is_extended_by_another_iteration(tmp_path):
    once = run(tmp_path, "hyperband")
    twice = run(tmp_path, "hyperband", hyperband_iterations=2)
    assert len(twice) > len(once)
    assert {name: twice[name] for name in once} == once
    assert twice == run(tmp_path / "at once", "hyperband", hyperband_iterations=2)


def test_overwrite_begins_anew_unless_somebody_searches_there(tmp_path):
    run(tmp_path, "random", most=2)
    running = Project(tmp_path, "p[1]", oracle("random"))
    with running.searching(None), pytest.raises(SearchError, match="is being searched"):
        Project(tmp_path, "p[1]", oracle("random"), overwrite=True).prepare()
    Project(tmp_path, "p[1]", oracle("random"), overwrite=True).prepare()
    assert trials_of(opened(tmp_path, "random")[0]) == {}


def test_an_oracle_of_the_users_own_keeps_its_class_and_becomes_durable_once():
    class Own(keras_tuner.oracles.RandomSearchOracle):
        pass

    own = Own(OBJECTIVE, max_trials=2)
    assert durable(durable(own)) is own
    assert isinstance(own, Own)
    assert type(own).__mro__.count(keras_tuner.oracles.RandomSearchOracle) == 1


def test_a_method_that_raises_does_not_lock_other_threads_out(tmp_path):
    import threading

    searched, _ = opened(tmp_path, "random")
    trial = searched.create_trial("tuner0")
    caught = []

    def report():
        try:
            searched.update_trial(trial.trial_id, {"loss": 1.0})
        except ValueError as error:
            caught.append(error)

    threads = [threading.Thread(target=report) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join(timeout=20)
    assert len(caught) == 2, "the second thread waits for a lock that the first has kept"
