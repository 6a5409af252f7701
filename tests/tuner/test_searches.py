"""Each of the four searches, on one replica and on several: all trials finish, in scope."""

from __future__ import annotations

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from keras_tpu_kit.tuner.project.durable import durable
from tests.replicas import replicas
from tests.tuner.spaces import CPU, TRAIN, VALID, Sum, build, outcomes, strategy_of

SEARCHES = {
    "random": (ktk.RandomSearch, {"max_trials": 2}),
    "bayesian": (ktk.BayesianOptimization, {"max_trials": 3, "num_initial_points": 2}),
    "grid": (ktk.GridSearch, {"max_trials": 3}),
    "hyperband": (ktk.Hyperband, {"max_epochs": 2, "factor": 2}),
}
FIXED = {"random": 2, "bayesian": 3, "grid": 3, "hyperband": 5}


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(
    "count", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_search_finishes_all_trials_and_rebuilds_the_winner(name, count, tmp_path):
    search, options = SEARCHES[name]
    strategy = strategy_of(count)
    tuner = search(Sum(strategy), "val_loss", seed=3, directory=tmp_path, **options)
    tuner.search(TRAIN, validation_data=VALID, global_batch_size=16, epochs=2, verbose=0)

    results = tuner.results()
    assert [each["outcome"] for each in results] == ["finished"] * FIXED[name]
    assert {each["num_replicas"] for each in results} == {count}
    assert not tf.distribute.has_strategy()

    (best,) = tuner.get_best_models()
    assert best.distribute_strategy.num_replicas_in_sync == count
    rebuilt = tuner.factory.create(tuner.get_best_hyperparameters()[0])
    rebuilt.set_weights(best.get_weights())
    with strategy_of(1).scope():
        plain = build(tuner.get_best_hyperparameters()[0])
    plain.set_weights(best.get_weights())
    scores = [model.evaluate(*VALID, verbose=0)[0] for model in (best, rebuilt, plain)]
    np.testing.assert_allclose(scores, results[0]["score"], rtol=1e-5)


def test_promoted_hyperband_trials_continue_from_their_weights(tmp_path):
    tuner = ktk.Hyperband(
        Sum(strategy_of(1)), "val_loss", max_epochs=2, factor=2, seed=3, directory=tmp_path
    )
    seen = {}
    fit = keras.Model.fit

    class Watch(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            seen.setdefault("begin", []).append(self.model.get_weights())
            seen.setdefault("updates", []).append(int(self.model.optimizer.iterations.numpy()))

        def on_train_end(self, logs=None):
            seen.setdefault("end", []).append(self.model.get_weights())

        def __deepcopy__(self, memo):
            return self

    assert fit is keras.Model.fit
    tuner.search(TRAIN, validation_data=VALID, global_batch_size=16, verbose=0, callbacks=[Watch()])
    trials = [tuner.oracle.trials[trial_id] for trial_id in tuner.oracle.start_order]
    promoted = [
        (index, [each.trial_id for each in trials].index(values["tuner/trial_id"]))
        for index, trial in enumerate(trials)
        if "tuner/trial_id" in (values := trial.hyperparameters.values)
    ]
    assert promoted
    for index, before in promoted:
        for new, old in zip(seen["begin"][index], seen["end"][before], strict=True):
            np.testing.assert_array_equal(new, old)
        assert seen["updates"][index] == 4  # One epoch of 64 rows by 16.
        assert trials[index].hyperparameters.values["tuner/initial_epoch"] == 1
    epochs = {each["trial_id"]: each["epochs"] for each in tuner.results()}
    assert epochs[trials[promoted[0][0]].trial_id] == 1


def test_strategy_tuner_keeps_hyperband_whole_with_any_oracle(tmp_path):
    oracle = keras_tuner.oracles.HyperbandOracle("val_loss", max_epochs=2, factor=2, seed=3)
    tuner = ktk.StrategyTuner(Sum(strategy_of(1)), oracle, directory=tmp_path)
    tuner.search(TRAIN, validation_data=VALID, global_batch_size=16, epochs=9, verbose=0)
    assert sorted(each["epochs"] for each in tuner.results()) == [1, 1, 1, 2, 2]
    promoted = [e for e in tuner.results() if "tuner/trial_id" in e["hyperparameters"]]
    assert [each["planned_epochs"] for each in promoted] == [1]


def test_a_hyperparameter_that_one_of_three_workers_finds_joins_the_grid(tmp_path):
    known = keras_tuner.HyperParameters()
    known.Choice("rate", [1, 2, 3, 4])
    searched = durable(
        keras_tuner.oracles.GridSearchOracle(
            objective=keras_tuner.Objective("val_loss", "min"), hyperparameters=known
        )
    )
    searched._set_project_dir(str(tmp_path), "p")

    def end(trial):
        trial.hyperparameters.Choice("batch", [8, 16])
        searched.update_space(trial.hyperparameters)
        searched.update_trial(trial.trial_id, {"val_loss": 1.0})
        trial.status = "COMPLETED"
        searched.end_trial(trial)

    running = {f"worker{index}": searched.create_trial(f"worker{index}") for index in range(3)}
    while running:
        worker = next(iter(running))
        end(running.pop(worker))
        following = searched.create_trial(worker)
        if following.status == "RUNNING":
            running[worker] = following
    tried = [trial.hyperparameters.values for trial in searched.trials.values()]
    grid = {(rate, batch) for rate in (1, 2, 3, 4) for batch in (8, 16)}
    assert sorted((each["rate"], each["batch"]) for each in tried) == sorted(grid)


def test_grid_has_a_combination_for_each_worker_at_once(tmp_path):
    tuner = ktk.GridSearch(build, "val_loss", max_trials=4, directory=tmp_path, strategy="cpu")
    began = [tuner.oracle.create_trial(f"worker{index}") for index in range(4)]
    assert [trial.status for trial in began] == ["RUNNING"] * 4
    alone = keras_tuner.GridSearch(build, "val_loss", max_trials=4, directory=tmp_path / "stock")
    for trial in began:
        expected = alone.oracle.create_trial("one")
        assert trial.hyperparameters.values == expected.hyperparameters.values
        alone.oracle.update_trial(expected.trial_id, {"val_loss": 1.0})
        expected.status = "COMPLETED"
        alone.oracle.end_trial(expected)


def test_grid_keeps_its_order(tmp_path):
    tuner = ktk.GridSearch(build, "val_loss", max_trials=3, directory=tmp_path, strategy="cpu")
    tuner.search(*TRAIN, validation_data=VALID, batch_size=16, epochs=1, verbose=0)
    tried = [tuner.oracle.trials[trial_id] for trial_id in tuner.oracle.start_order]
    values = [tuple(trial.hyperparameters.values[n] for n in ("units", "lr")) for trial in tried]
    assert values == [(2, 0.01), (2, 0.1), (3, 0.01)]


def test_promoted_trials_without_an_input_shape_are_restored(tmp_path):
    def shapeless(hp):
        hidden = keras.layers.Dense(hp.Int("units", 2, 8), activation="relu")
        model = keras.Sequential([hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.05), "mse")
        return model

    tuner = ktk.Hyperband(
        shapeless,
        "val_loss",
        max_epochs=4,
        factor=2,
        seed=1,
        directory=tmp_path,
        strategy=CPU,
    )
    tuner.search(*TRAIN, validation_data=VALID, verbose=0)
    # A trial of the last round was promoted twice.
    rounds = [each["hyperparameters"]["tuner/round"] for each in tuner.results()]
    assert max(rounds) == 2 and set(outcomes(tuner)) == {"finished"}
    best = tuner.get_best_models()[0]
    assert best.evaluate(*VALID, verbose=0) == pytest.approx(tuner.results()[0]["score"], rel=1e-5)


def test_a_tuner_of_keras_tuner_s_signature(tmp_path):
    oracle = ktk.oracles.GridSearchOracle(ktk.Objective("val_loss", "min"), max_trials=1)
    tuner = ktk.StrategyTuner(oracle, build, directory=tmp_path, strategy=CPU)
    tuner.search(*TRAIN, validation_data=VALID, verbose=0)
    assert outcomes(tuner) == ["finished"]
    with pytest.raises(ktk.SearchError, match=r"no keras_tuner\.Oracle"):
        ktk.StrategyTuner(hypermodel=build)
    assert issubclass(ktk.HyperModel, keras_tuner.HyperModel)


def test_a_search_that_was_over_says_so(tmp_path, capsys):
    told = []
    for most in (1, 1, 2):
        tuner = ktk.GridSearch(
            build, "val_loss", max_trials=most, seed=1, directory=tmp_path, strategy=CPU
        )
        tuner.search(*TRAIN, validation_data=VALID, verbose=1, callbacks=keras.callbacks.History())
        told.append("All 1 trials of this project had ended" in capsys.readouterr().out)
    assert told == [False, True, False]
    assert "│ finished" in str(tuner.results_table()) and outcomes(tuner) == ["finished"] * 2


def test_moving_from_keras_tuner_is_changing_one_import(tmp_path):
    class Regression(keras_tuner.HyperModel):
        def build(self, hp):
            return build(hp)

        def fit(self, hp, model, *args, **kwargs):
            return model.fit(*args, batch_size=hp.Choice("batch", [8, 16]), **kwargs)

    tuner = ktk.RandomSearch(
        Regression(),
        objective="val_mae",
        max_trials=2,
        executions_per_trial=2,
        seed=1,
        directory=str(tmp_path),
        project_name="moved",
        distribution_strategy=replicas(2),
    )
    assert isinstance(tuner, keras_tuner.RandomSearch)
    tuner.search(TRAIN[0], TRAIN[1], validation_data=VALID, epochs=1, verbose=0)
    assert [each["outcome"] for each in tuner.results()] == ["finished"] * 2
    assert [each["epochs"] for each in tuner.results()] == [2, 2]
    assert set(tuner.get_best_hyperparameters()[0].values) == {"units", "lr", "batch"}
    for each in tuner.results():
        assert each["per_replica_batch_size"] * 2 == each["hyperparameters"]["batch"]
