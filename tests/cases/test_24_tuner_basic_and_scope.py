"""KerasTuner loses an open scope, and reports "pop from empty list"."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.cases.parts import linear, rows
from tests.replicas import replicas

DATA = rows(64)


def build(hp):
    model = linear()
    model.compile(keras.optimizers.Adam(hp.Float("lr", 1e-3, 1e-1)), "mse")
    return model


def tuner(directory, hypermodel=build, **options):
    options = {"max_trials": 2, "directory": directory, "strategy": replicas(2), **options}
    return ktk.RandomSearch(hypermodel, "val_loss", **options)


def search(one, data=DATA, validation=DATA):
    one.search(*data, validation_data=validation, batch_size=16, epochs=1, verbose=0)


def test_trials_train_on_all_replicas_and_the_best_is_restored_with_its_optimizer(tmp_path):
    one = tuner(tmp_path)
    search(one)
    (best,) = one.get_best_models()
    assert best.distribute_strategy.num_replicas_in_sync == 2
    assert int(keras.ops.convert_to_numpy(best.optimizer.iterations)) == 4
    assert best.evaluate(*DATA, verbose=0) == pytest.approx(one.results()[0]["score"], rel=1e-5)


def test_search_inside_an_open_scope_is_refused_and_the_scope_stays_whole(tmp_path):
    one = tuner(tmp_path)
    with replicas(2).scope():
        with pytest.raises(ktk.SearchError, match=r"inside an open strategy\.scope"):
            search(one)
        with pytest.raises(ktk.SearchError, match=r"inside an open strategy\.scope"):
            tuner(tmp_path / "other")
        assert tf.distribute.get_strategy() is replicas(2)
    assert not tf.distribute.has_strategy()


def test_optimizer_made_outside_is_named(tmp_path):
    optimizer = keras.optimizers.Adam(name="mine")
    # A variable of it exists already, so that it belongs to one device.
    optimizer.build([keras.Variable([0.0])])

    def shared(hp):
        model = linear()
        model.compile(optimizer, "mse")
        return model

    with pytest.raises((ktk.KitError, ValueError)):
        search(tuner(tmp_path, shared))


def test_another_strategy_inside_build_stops_with_its_cause(tmp_path):
    def elsewhere(hp):
        with replicas(4).scope():
            return build(hp)

    with pytest.raises((ktk.KitError, RuntimeError)):
        search(tuner(tmp_path, elsewhere))


def test_validation_set_that_the_replicas_do_not_divide(tmp_path):
    x, y = DATA
    one = tuner(tmp_path, max_trials=1)
    search(one, (x[:32], y[:32]), (x[:15], y[:15]))
    assert [each["outcome"] for each in one.results()] == ["finished"]
    (best,) = one.get_best_models()
    plain = linear()
    plain.compile("sgd", "mse")
    plain.set_weights(best.get_weights())
    score = plain.evaluate(x[:15], y[:15], verbose=0)
    assert score == pytest.approx(one.results()[0]["score"], rel=1e-5)
