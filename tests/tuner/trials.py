"""Searches whose trials take no time: an oracle, its project, and a score of the values."""

from __future__ import annotations

from typing import Any

import keras_tuner

from keras_tpu_kit.tuner.project import Project

OBJECTIVE = keras_tuner.Objective("score", "max")
KINDS = ("random", "grid", "hyperband", "bayesian")


def oracle(kind: str, **options: Any) -> keras_tuner.Oracle:
    """Returns a new oracle over two or three hyperparameters."""
    hp = keras_tuner.HyperParameters()
    hp.Choice("a", [1, 2, 3])
    hp.Choice("b", ["x", "y"])
    if kind != "grid":
        hp.Float("c", 0.0, 1.0)
    options = {"objective": OBJECTIVE, "hyperparameters": hp, "seed": 3, **options}
    if kind == "random":
        return keras_tuner.oracles.RandomSearchOracle(**{"max_trials": 5, **options})
    if kind == "grid":
        return keras_tuner.oracles.GridSearchOracle(**options)
    if kind == "hyperband":
        return keras_tuner.oracles.HyperbandOracle(**{"max_epochs": 4, "factor": 2, **options})
    return keras_tuner.oracles.BayesianOptimizationOracle(
        **{"max_trials": 5, "num_initial_points": 3, **options}
    )


def score(values: dict[str, Any]) -> float:
    """Returns what a trial comes to."""
    return values["a"] + (values["b"] == "y") / 2 + values.get("c", 0.0) / 4


def run(
    directory: Any, kind: str, most: int | None = None, oracle_of: Any = oracle, **options: Any
) -> dict[str, Any]:
    """Searches in a directory, for `most` trials or to the end, and returns all trials.

    The values, the status and the score of each, by its name.
    """
    searched = oracle_of(kind, **options)
    project = Project(directory, "p[1]", searched)
    project.prepare()
    with project.searching(None):
        project.on_space_known()
        while most is None or most > 0:
            trial = searched.create_trial("tuner0")
            if trial.status == "STOPPED":
                break
            searched.update_trial(trial.trial_id, {"score": score(trial.hyperparameters.values)})
            trial.status = "COMPLETED"
            searched.end_trial(trial)
            most = None if most is None else most - 1
    return trials_of(searched)


def trials_of(searched: keras_tuner.Oracle) -> dict[str, Any]:
    """Returns values, status and score of each trial of an oracle."""
    return {
        name: (trial.hyperparameters.values, trial.status, trial.score)
        for name, trial in searched.trials.items()
    }
