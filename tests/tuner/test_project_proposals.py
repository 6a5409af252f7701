"""Bayesian proposals: the same after a restart, and ready before a worker asks."""

from __future__ import annotations

import time

import numpy as np

from keras_tpu_kit.tuner.project import Project, ahead, algorithms
from tests.tuner.trials import oracle, run, score, trials_of


def served(directory, most=None):
    """Searches as a chief does, whose proposals are computed by another thread."""
    searched = oracle("bayesian", max_trials=7)
    project = Project(directory, "p", searched)
    project.prepare()
    idle = 0
    with project.searching(None):
        project.on_space_known()
        searched.propose_ahead()
        while most is None or most > 0:
            trial = searched.create_trial("worker0")
            if trial.status == "STOPPED":
                break
            if trial.status == "IDLE":
                idle += 1
                time.sleep(0.02)
                continue
            searched.update_trial(trial.trial_id, {"score": score(trial.hyperparameters.values)})
            trial.status = "COMPLETED"
            searched.end_trial(trial)
            most = None if most is None else most - 1
    return trials_of(searched), idle


def test_proposals_computed_ahead_are_the_same_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setattr(algorithms, "AHEAD_FROM", 3)
    expected, idle = served(tmp_path / "at once")
    assert len(expected) == 7
    assert idle > 0, "with trials that take no time, a worker has to ask again"
    served(tmp_path / "resumed", most=5)
    assert served(tmp_path / "resumed")[0] == expected


def test_a_proposal_computed_ahead_takes_the_trial_before_as_running(tmp_path):
    run(tmp_path, "bayesian", most=4)
    searched = Project(tmp_path, "p[1]", oracle("bayesian")).oracle
    searched.begin()
    snapshot = ahead.ProposalsAhead(searched)._snapshot()
    assert searched.trials["3"].status == "COMPLETED"
    assert snapshot.trials["3"].status == "RUNNING" and list(snapshot.ongoing_trials) == ["3"]
    vectors, scores = snapshot._vectorize_trials()
    assert len(vectors) == 4
    known = [searched.trials[name].score for name in "012"]
    np.testing.assert_allclose(scores[:3], np.negative(known))
    assert scores[3] != -searched.trials["3"].score


def test_a_waiting_trial_is_not_lent_the_score_of_another(tmp_path):
    run(tmp_path, "bayesian", most=4)
    searched = Project(tmp_path, "p[1]", oracle("bayesian")).oracle
    searched.begin()
    searched.trials["1"].status = "RUNNING"
    vectors, scores = searched._vectorize_trials()
    assert len(vectors) == len(scores) == 3
