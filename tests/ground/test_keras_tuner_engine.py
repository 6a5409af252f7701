"""What the tuner uses of KerasTuner's engine, and why it does not use the rest."""

from __future__ import annotations

import inspect
import threading

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from keras_tuner.src.engine.oracle import LOCKS

from keras_tpu_kit.factory import names
from keras_tpu_kit.tuner import internals
from tests.ground.linear import rows, stock
from tests.replicas import replicas


def oracle_of(directory, **options):
    oracle = keras_tuner.oracles.RandomSearchOracle("loss", max_trials=9, seed=1, **options)
    oracle.verbose = 0
    oracle.hyperparameters.Float("lr", 0.0, 1.0)
    oracle._set_project_dir(str(directory), "ground")
    return oracle


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("_populate_initial_space", []),
        ("_try_build", ["hp"]),
        ("_build_hypermodel", ["hp"]),
        ("_build_and_fit_model", ["trial", "args", "kwargs"]),
        ("_try_run_and_update_trial", ["trial", "fit_args", "fit_kwargs"]),
        ("_override_compile_args", ["model"]),
        ("_deepcopy_callbacks", ["callbacks"]),
        ("_configure_tensorboard_dir", ["callbacks", "trial", "execution"]),
        ("_get_checkpoint_fname", ["trial_id"]),
        ("_get_build_config_fname", ["trial_id"]),
        ("on_search_begin", []),
        ("on_trial_begin", ["trial"]),
        ("on_trial_end", ["trial"]),
        ("on_search_end", []),
    ],
)
def test_tuner_has_the_methods_that_the_engine_overrides_or_calls(method, parameters):
    signature = inspect.signature(getattr(keras_tuner.Tuner, method))
    assert list(signature.parameters) == ["self", *parameters]


@pytest.mark.parametrize(
    "name", ["RandomSearch", "BayesianOptimization", "GridSearch", "Hyperband"]
)
def test_the_four_searches_begin_with_hypermodel_and_objective(name):
    parameters = list(inspect.signature(getattr(keras_tuner, name).__init__).parameters)
    assert parameters[:3] == ["self", "hypermodel", "objective"]
    assert parameters[-1] == "kwargs"


def test_update_trial_answers_with_the_trial_and_appends_at_a_step(tmp_path):
    oracle = oracle_of(tmp_path)
    trial = oracle.create_trial("tuner0")
    answer = oracle.update_trial(trial.trial_id, {"loss": 1.0}, step=0)
    assert answer is oracle.trials[trial.trial_id]
    oracle.update_trial(trial.trial_id, {"loss": 3.0}, step=0)
    # Hence a trial that is begun again has to be forgotten first.
    assert [each.mean() for each in trial.metrics.get_history("loss")] == [2.0]


def test_a_method_that_raises_leaves_the_oracle_locked(tmp_path):
    oracle = oracle_of(tmp_path)
    trial = oracle.create_trial("tuner0")
    with pytest.raises(ValueError, match="Objective value missing"):
        oracle.update_trial(trial.trial_id, {"accuracy": 1.0})
    assert LOCKS[oracle].locked()
    LOCKS[oracle].release()
    assert threading.current_thread().name == "MainThread"


def test_failures_in_a_row_raise_before_the_trial_is_saved(tmp_path):
    oracle = oracle_of(tmp_path, max_consecutive_failed_trials=1)
    trial = oracle.create_trial("tuner0")
    trial.status, trial.message = internals.TrialStatus.FAILED, "why"
    with pytest.raises(RuntimeError, match="consecutive failures"):
        oracle.end_trial(trial)
    saved = tmp_path / "ground" / f"trial_{trial.trial_id}" / "trial.json"
    assert "FAILED" not in saved.read_text()
    LOCKS[oracle].release()


def test_direction_of_a_rate_is_unknown_to_keras_tuner():
    with pytest.raises(ValueError, match="Could not infer optimization direction"):
        keras_tuner.oracles.RandomSearchOracle("samples_per_second")


def test_clear_session_forgets_the_dtype_policy_and_reset_names_does_not():
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        keras.layers.Dense(1)
        with names.fresh_names():
            assert keras.layers.Dense(1).name == "dense"
        assert keras.layers.Dense(1).name != "dense"
        names.reset_names()
        assert keras.layers.Dense(1).name == "dense"
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        keras.utils.clear_session(free_memory=False)
        assert keras.config.dtype_policy().name == "float32"
    finally:
        keras.config.set_dtype_policy(before)


@pytest.mark.parametrize(("max_epochs", "factor"), [(2, 2), (3, 3), (9, 3), (10, 2)])
def test_hyperband_hands_out_as_many_trials_as_its_brackets_hold(max_epochs, factor, tmp_path):
    oracle = keras_tuner.oracles.HyperbandOracle(
        "loss", max_epochs=max_epochs, factor=factor, seed=1
    )
    oracle.verbose = 0
    oracle.hyperparameters.Float("lr", 0.0, 1.0)
    oracle._set_project_dir(str(tmp_path), "ground")
    count = 0
    while (trial := oracle.create_trial("tuner0")).status != internals.TrialStatus.STOPPED:
        oracle.update_trial(trial.trial_id, {"loss": float(count)})
        trial.status = internals.TrialStatus.COMPLETED
        oracle.end_trial(trial)
        count += 1
    assert internals.trials_in_all(oracle) == count


def test_history_becomes_the_metrics_of_its_best_epoch():
    history = keras.callbacks.History()
    history.history = {"loss": [3.0, 1.0, 2.0], "accuracy": [0.1, 0.3, 0.2]}
    objective = internals.Objective("loss", "min")
    assert internals.convert_to_metrics_dict([history], objective) == {"loss": 1.0, "accuracy": 0.3}
    assert internals.get_best_step([history], objective) == 1
    with pytest.raises(KeyError):
        internals.convert_to_metrics_dict([history], internals.Objective("val_loss", "min"))


def test_an_open_scope_is_thrown_away_by_a_search(tmp_path):
    def count_replicas(hp):
        hp.Float("lr", 1e-3, 1e-1)
        seen.append(tf.distribute.get_strategy().num_replicas_in_sync)
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    seen = []
    scope = replicas(2).scope()
    scope.__enter__()
    tuner = keras_tuner.RandomSearch(count_replicas, "loss", max_trials=1, directory=tmp_path)
    tuner.search(*rows(8), batch_size=4, epochs=1, verbose=0)
    assert seen == [2, 1]
    # keras-tuner#686
    with pytest.raises(IndexError, match="pop from empty list"):
        scope.__exit__(None, None, None)


def test_compile_arguments_of_a_tuner_fail_for_a_model_that_is_not_compiled(tmp_path):
    def bare(hp):
        hp.Float("lr", 1e-3, 1e-1)
        return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    with pytest.raises(AttributeError, match="optimizer"):
        keras_tuner.RandomSearch(
            bare, "loss", max_trials=1, directory=tmp_path, optimizer="sgd", loss="mse"
        )._build_hypermodel(keras_tuner.HyperParameters())


def test_weights_files_hold_the_optimizer(tmp_path):
    model = stock(count=1)
    model.fit(*rows(8), batch_size=4, verbose=0)
    model.save_weights(tmp_path / "a.weights.h5")
    other = stock(count=1)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(tmp_path / "a.weights.h5")
    assert int(np.asarray(keras.ops.convert_to_numpy(other.optimizer.iterations))) == 2
