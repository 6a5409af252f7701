"""What KerasTuner does with its files and between its processes, as the kit's mends rest on it.

A test here that fails says that an upgrade has changed something: then a mend may go.
"""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import threading

import keras_tuner
import numpy as np
import pytest
from keras_tuner.src import protos
from keras_tuner.src.distribute import oracle_chief, oracle_client
from keras_tuner.src.engine import base_tuner
from keras_tuner.src.engine.oracle import LOCKS, THREADS, Oracle
from keras_tuner.src.tuners.gridsearch import LinkedList

from tests.tuner.trials import OBJECTIVE, oracle


class Bare(base_tuner.BaseTuner):
    """A tuner that trains nothing."""

    def run_trial(self, trial):
        return float(trial.hyperparameters.values["a"])


def stock(directory, kind, name="p", **options):
    searched = oracle(kind, objective=keras_tuner.Objective("default_objective", "min"), **options)
    searched.verbose = 0
    return Bare(searched, directory=str(directory), project_name=name)


def one_trial(searched, tuner_id="tuner0"):
    trial = searched.create_trial(tuner_id)
    searched.update_trial(trial.trial_id, {"default_objective": 1.0})
    trial.status = "COMPLETED"
    searched.end_trial(trial)
    return trial


def test_a_restarted_grid_search_ends_in_a_key_error(tmp_path):
    one_trial(stock(tmp_path, "grid").oracle)
    pathlib.Path(tmp_path, "p", "tuner0.json").write_text("{}")
    again = stock(tmp_path, "grid").oracle
    with pytest.raises(KeyError):
        one_trial(again), one_trial(again)


def test_a_grid_search_lets_one_of_several_workers_train_at_a_time(tmp_path):
    searched = stock(tmp_path, "grid").oracle
    first, second = searched.create_trial("worker0"), searched.create_trial("worker1")
    assert (first.status, second.status) == ("RUNNING", "RUNNING")
    assert searched.create_trial("worker2").status == "IDLE"
    searched.update_trial(first.trial_id, {"default_objective": 1.0})
    first.status = "COMPLETED"
    searched.end_trial(first)
    assert searched.create_trial("worker0").status == "IDLE"


@pytest.mark.parametrize("name", ["oracle.json", "trial_0/trial.json", "tuner0.json"])
def test_a_truncated_file_makes_a_project_unopenable(tmp_path, name):
    tuner = stock(tmp_path, "random")
    one_trial(tuner.oracle)
    tuner.save()
    os.truncate(tmp_path / "p" / name, 1)
    with pytest.raises(json.JSONDecodeError):
        stock(tmp_path, "random")


def test_a_project_whose_name_looks_like_a_pattern_forgets_its_trials(tmp_path):
    tuner = stock(tmp_path, "random", "p[1]")
    one_trial(tuner.oracle)
    tuner.save()
    assert stock(tmp_path, "random", "p[1]").oracle.trials == {}


def test_the_state_that_is_saved_at_the_end_of_a_trial_still_calls_it_ongoing(tmp_path):
    one_trial(stock(tmp_path, "random").oracle)
    state = json.loads((tmp_path / "p" / "oracle.json").read_text())
    assert state["ongoing_trials"] == {"tuner0": "0"} and state["end_order"] == ["0"]


def test_a_method_that_raises_keeps_the_oracles_lock(tmp_path):
    searched = stock(tmp_path, "random").oracle
    trial = searched.create_trial("tuner0")
    with pytest.raises(ValueError, match="Objective value missing"):
        searched.update_trial(trial.trial_id, {"other": 1.0})
    assert LOCKS[searched].locked()
    assert THREADS[searched] == threading.current_thread().name
    LOCKS[searched].release()


def test_reloading_a_changed_space_keeps_the_old_one_silently(tmp_path):
    tuner = stock(tmp_path, "random")
    one_trial(tuner.oracle)
    tuner.save()
    changed = keras_tuner.HyperParameters()
    changed.Choice("a", [7, 8])
    again = stock(tmp_path, "random", hyperparameters=changed)
    assert again.oracle.get_space().get("a") == 1


def test_what_the_durable_oracle_overrides_and_reads_is_there():
    for name in ("create_trial", "update_trial", "end_trial", "save", "reload", "_save_trial"):
        assert callable(getattr(Oracle, name))
    searched = oracle("random")
    for name in ("_retry_queue", "_run_times", "_id_to_hash", "_tried_so_far", "_seed_state"):
        assert hasattr(searched, name)
    grid = oracle("grid")
    assert isinstance(grid._ordered_ids, LinkedList) and grid._populate_next == []
    hyperband = oracle("hyperband")
    assert set(hyperband._brackets[0]) == {"bracket_num", "rounds"}
    assert {"_get_epochs", "_get_size", "_start_new_bracket"} <= set(dir(hyperband))


def test_the_random_numbers_of_bayesian_search_are_in_no_file():
    searched = oracle("bayesian")
    assert isinstance(searched._random_state, np.random.RandomState)
    assert not [key for key in searched.get_state() if "random" in key]
    assert {"_vectorize_trials", "_make_gpr"} <= set(dir(searched))


def test_a_chief_has_one_thread_no_token_and_lingers():
    source = inspect.getsource(oracle_chief.start_server)
    assert "max_workers=1" in source
    assert "add_insecure_port" in source
    assert "time.sleep(20)" in source


def test_a_worker_waits_an_hour_for_a_chief():
    assert oracle_client.TIMEOUT == 3600
    assert "wait_for_ready=True" in inspect.getsource(oracle_client.OracleClient.create_trial)


def test_the_protocol_carries_values_exactly_metrics_as_float32_and_no_message():
    hp = keras_tuner.HyperParameters()
    hp.Float("lr", 1e-4, 1e-1)
    hp.values["lr"] = 0.0123456789012345
    trial = keras_tuner.engine.trial.Trial(hp, "0", "COMPLETED", message="why")
    trial.metrics.register("score", "max")
    trial.metrics.update("score", 1 / 3)
    back = keras_tuner.engine.trial.Trial.from_proto(trial.to_proto())
    assert back.hyperparameters.values == hp.values
    assert back.metrics.get_best_value("score") == np.float32(1 / 3)
    assert back.message is None


def test_the_servicer_has_the_methods_that_the_kits_adds_to():
    names = set(protos.get_service_grpc().OracleServicer.__dict__)
    assert {"CreateTrial", "UpdateTrial", "EndTrial", "GetSpace", "UpdateSpace"} <= names
    servicer = oracle_chief.OracleServicer(oracle("random", objective=OBJECTIVE))
    assert servicer.oracle.objective == OBJECTIVE
