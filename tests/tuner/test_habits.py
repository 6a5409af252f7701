"""Habits of KerasTuner users: own objectives, own data, TensorBoard, coming back later."""

from __future__ import annotations

import pathlib

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import keras_tpu_kit as ktk
from tests.tuner.spaces import CPU, TRAIN, VALID, Sum, TunedBatch, build, outcomes


@pytest.mark.parametrize(
    ("returned", "objective"),
    [(lambda value: value, None), (lambda value: {"own": value}, ("own", "min"))],
    ids=["a number", "a dict"],
)
def test_own_fit_returns_the_objective_under_any_name(returned, objective, tmp_path):
    class Own(keras_tuner.HyperModel):
        def build(self, hp):
            return build(hp)

        def fit(self, hp, model, x, y, **kwargs):
            model.fit(x, y, **kwargs)
            return returned(float(hp.get("units")))

    tuner = ktk.RandomSearch(
        Own(),
        objective and keras_tuner.Objective(*objective),
        max_trials=2,
        seed=2,
        directory=tmp_path,
        strategy=CPU,
    )
    tuner.search(*TRAIN, verbose=0)
    for each in tuner.results():
        assert each["score"] == each["hyperparameters"]["units"]
    (best,) = tuner.get_best_models()
    assert best.layers[0].units == tuner.results()[0]["score"]


def test_black_box_without_a_hypermodel(tmp_path):
    class Parabola(ktk.RandomSearch):
        def run_trial(self, trial, shift, **kwargs):
            return (trial.hyperparameters.Float("x", -1.0, 1.0) - shift) ** 2

    tuner = Parabola(max_trials=5, seed=1, directory=tmp_path, strategy=CPU)
    tuner.search(0.5, verbose=0)
    assert outcomes(tuner) == ["finished"] * 5
    best = tuner.get_best_hyperparameters()[0].get("x")
    tried = [each["hyperparameters"]["x"] for each in tuner.results()]
    assert best == min(tried, key=lambda x: (x - 0.5) ** 2)


def test_objectives_are_weighed_together(tmp_path):
    tuner = ktk.RandomSearch(
        build, ["val_loss", "val_mae"], max_trials=1, directory=tmp_path, strategy=CPU
    )
    tuner.search(*TRAIN, validation_data=VALID, epochs=2, verbose=0)
    (result,) = tuner.results()
    sums = np.add(result["metrics"]["val_loss"], result["metrics"]["val_mae"])
    assert result["score"] == pytest.approx(sums)


def test_throughput_is_an_objective(tmp_path):
    tuner = ktk.GridSearch(TunedBatch(CPU), "samples_per_second", max_trials=2, directory=tmp_path)
    tuner.search(TRAIN, validation_data=VALID, epochs=3, verbose=0)
    rates = [each["score"] for each in tuner.results()]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 0
    assert {"val_loss", "samples_per_second_per_replica"} <= set(tuner.results()[0]["metrics"])


def test_throughput_that_no_epoch_could_measure_is_told(tmp_path):
    tuner = ktk.RandomSearch(Sum(CPU), "samples_per_second", max_trials=1, directory=tmp_path)
    with pytest.raises(ktk.SearchError) as error:
        tuner.search(TRAIN, global_batch_size=64, epochs=1, verbose=0)
    assert error.value.finding.code == "objective-not-measured"


def test_a_search_is_taken_up_later_without_data_for_its_best_models(tmp_path):
    tuner = ktk.RandomSearch(TunedBatch(CPU), "val_loss", max_trials=2, seed=1, directory=tmp_path)
    tuner.search(TRAIN, validation_data=VALID, epochs=1, verbose=0)
    again = ktk.RandomSearch(TunedBatch(CPU), "val_loss", max_trials=2, seed=1, directory=tmp_path)
    assert again.results() == tuner.results()
    (best,) = again.get_best_models()
    score = best.evaluate(*VALID, verbose=0)[0]
    assert score == pytest.approx(tuner.results()[0]["score"], rel=1e-5)


def test_equal_seeds_give_equal_trials(tmp_path):
    def scores(name):
        tuner = ktk.RandomSearch(
            Sum(CPU), "val_loss", max_trials=2, seed=5, directory=tmp_path, project_name=name
        )
        tuner.search(TRAIN, validation_data=VALID, global_batch_size=16, epochs=2, verbose=0)
        return [(each["score"], each["hyperparameters"]) for each in tuner.results()]

    assert scores("one") == scores("other")


@pytest.mark.parametrize("kind", ["split", "batched", "rows", "weights"])
def test_data_in_any_form(kind, tmp_path):
    x, y = TRAIN
    rows = tf.data.Dataset.from_tensor_slices(TRAIN)
    valid = tf.data.Dataset.from_tensor_slices(VALID).batch(8)
    given = {
        "split": {"x": x, "y": y, "validation_split": 0.25},
        "batched": {"x": rows.batch(16), "validation_data": valid},
        "rows": {"x": rows, "validation_data": VALID},
        "weights": {"x": x, "y": y, "sample_weight": np.ones(64), "validation_data": VALID},
    }[kind]
    tuner = ktk.RandomSearch(Sum(CPU), "val_loss", max_trials=1, directory=tmp_path)
    tuner.search(**given, epochs=1, verbose=0)
    assert outcomes(tuner) == ["finished"]
    expected = {"split": 48 // 1, "batched": 64, "rows": 64, "weights": 64}[kind]
    assert tuner.factory.plan.num_samples == expected


def test_datasets_are_made_once_for_all_trials_of_a_plan(tmp_path):
    tuner = ktk.GridSearch(TunedBatch(CPU), "val_loss", max_trials=4, directory=tmp_path)
    tuner.search(TRAIN, validation_data=VALID, epochs=1, verbose=0)
    sizes = {each["per_replica_batch_size"] for each in tuner.results()}
    assert len(tuner.feeding._datasets) == 2 * len(sizes)


def test_tensorboard_gets_hyperparameters_and_throughput(tmp_path):
    tuner = ktk.RandomSearch(Sum(CPU), "val_loss", max_trials=1, directory=tmp_path)
    logs = tmp_path / "logs"
    tuner.search(
        TRAIN,
        validation_data=VALID,
        global_batch_size=16,
        epochs=2,
        verbose=0,
        callbacks=[keras.callbacks.TensorBoard(logs)],
    )
    tags = set()
    for path in pathlib.Path(logs).rglob("events.out.*"):
        for event in EventFileLoader(str(path)).Load():
            tags |= {value.tag for value in event.summary.value}
    assert {"epoch_loss", "epoch_samples_per_second"} <= tags
    assert any("hparams" in tag for tag in tags)


def test_arguments_of_compile_for_a_hypermodel_that_does_not_compile(tmp_path):
    def bare(hp):
        width = hp.Int("units", 2, 4)
        layers = [keras.Input((3,)), keras.layers.Dense(width), keras.layers.Dense(1)]
        return keras.Sequential(layers)

    options = {"directory": tmp_path, "strategy": CPU, "loss": "mse", "optimizer": "sgd"}
    tuner = ktk.RandomSearch(bare, "val_loss", max_trials=1, **options)
    tuner.search(*TRAIN, validation_data=VALID, epochs=1, verbose=0)
    assert outcomes(tuner) == ["finished"]
    with pytest.raises(ktk.SearchError) as error:
        ktk.RandomSearch(Sum(CPU), "val_loss", **options)
    assert error.value.finding.code == "compiled-twice"


def test_model_that_is_too_large_is_infeasible(tmp_path):
    tuner = ktk.GridSearch(
        build, "val_loss", max_trials=3, max_model_size=12, directory=tmp_path, strategy=CPU
    )
    tuner.search(*TRAIN, validation_data=VALID, epochs=1, verbose=0)
    assert outcomes(tuner) == ["finished", "finished", "infeasible"]


def test_model_without_an_input_shape_is_restored(tmp_path):
    def shapeless(hp):
        model = keras.Sequential([keras.layers.Dense(hp.Int("units", 2, 4)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    tuner = ktk.RandomSearch(shapeless, "val_loss", max_trials=1, directory=tmp_path, strategy=CPU)
    tuner.search(*TRAIN, validation_data=VALID, epochs=1, verbose=0)
    (best,) = tuner.get_best_models()
    assert best.evaluate(*VALID, verbose=0) == pytest.approx(tuner.results()[0]["score"], rel=1e-5)
