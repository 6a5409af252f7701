"""What goes wrong in a trial stops the search, or is recorded with its reason."""

from __future__ import annotations

import dataclasses

import keras
import keras_tuner
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.tuner.spaces import CPU, TRAIN, VALID, Sum, TunedBatch, build, outcomes


def search(model, tmp_path, *, objective="val_loss", max_trials=2, seed=1, epochs=1, **options):
    tuner = ktk.GridSearch(
        model,
        objective,
        max_trials=max_trials,
        seed=seed,
        directory=tmp_path,
        strategy=options.pop("strategy", CPU),
        pruner=options.pop("pruner", None),
    )
    arguments = {"validation_data": VALID, "epochs": epochs, "verbose": 0, **options}
    return tuner, lambda: tuner.search(TRAIN, **arguments)


def test_programming_error_stops_at_the_first_trial_with_its_cause(tmp_path):
    class Broken(Sum):
        trials = 0

        def fit_args(self, hp):
            return {"callbacks": [keras.callbacks.LambdaCallback(on_epoch_end=self.count)]}

        def count(self, epoch, logs):
            type(self).trials += 1
            raise ZeroDivisionError("in the user's callback")

        def __deepcopy__(self, memo):
            return self

    tuner, run = search(Broken(CPU), tmp_path)
    with pytest.raises(ZeroDivisionError, match="in the user's callback"):
        run()
    assert Broken.trials == 1
    assert len(tuner.oracle.trials) == 1


def test_kit_error_stops_at_the_first_trial(tmp_path):
    optimizer = keras.optimizers.Adam()

    class Shared(Sum):
        def compile_args(self, hp):
            return {"optimizer": optimizer, "loss": "mse", "metrics": "mae-typo"}

    tuner, run = search(Shared(CPU), tmp_path)
    with pytest.raises((ktk.KitError, ValueError)):
        run()
    assert len(tuner.oracle.trials) == 0  # Found while the space was explored.


def test_search_goes_on_where_it_stopped_once_the_mistake_is_mended(tmp_path):
    class Once(Sum):
        broken = True

        def fit_args(self, hp):
            if self.broken and hp.values.get("units") is not None:
                return {"callbacks": [keras.callbacks.LambdaCallback(on_train_begin=self.fail)]}
            return {}

        def fail(self, logs):
            raise RuntimeError("not yet")

        def __deepcopy__(self, memo):
            return self

    _, run = search(Once(CPU), tmp_path)
    with pytest.raises(RuntimeError, match="not yet"):
        run()
    Once.broken = False
    tuner, run = search(Once(CPU), tmp_path)
    run()
    assert outcomes(tuner) == ["finished", "finished"]


def test_mistyped_objective_is_refused_before_the_first_step(tmp_path):
    steps = []

    class Counted(Sum):
        def compile_args(self, hp):
            return {**super().compile_args(hp), "metrics": ["mae"]}

    objective = keras_tuner.Objective("val_mea", "min")
    tuner, run = search(Counted(CPU), tmp_path, objective=objective)
    watch = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: steps.append(1))
    with pytest.raises(ktk.SearchError) as error:
        run()
    assert error.value.finding.code == "objective-unknown"
    assert 'objective="val_mae"' in error.value.finding.fix
    del watch
    assert steps == []
    assert tuner.oracle.trials["0000" if "0000" in tuner.oracle.trials else "0"].score is None


def test_objective_on_validation_without_validation_data(tmp_path):
    _, run = search(Sum(CPU), tmp_path, validation_data=None)
    with pytest.raises(ktk.SearchError, match="no validation data"):
        run()


class Explodes(Sum):
    """Diverges with the second learning rate of the grid, in the first epoch of many."""

    def compile_args(self, hp):
        rate = hp.Choice("rate", [1e-3, 1e30])
        return {"optimizer": keras.optimizers.SGD(rate), "loss": "mse"}


def test_non_finite_loss_ends_the_trial_at_once(tmp_path):
    tuner, run = search(Explodes(CPU), tmp_path, epochs=6)
    run()
    assert outcomes(tuner) == ["finished", "diverged"]
    (diverged,) = [each for each in tuner.results() if each["outcome"] == "diverged"]
    assert diverged["epochs"] == 1
    assert diverged["score"] is None
    assert "loss was" in diverged["reason"]
    assert tuner.results()[0]["epochs"] == 6


def test_search_without_any_finished_trial_raises(tmp_path):
    class Hopeless(Sum):
        def compile_args(self, hp):
            rate = hp.Choice("rate", [1e30, 1e31])
            return {"optimizer": keras.optimizers.SGD(rate), "loss": "mse"}

    tuner, run = search(Hopeless(CPU), tmp_path)
    with pytest.raises(ktk.SearchError) as error:
        run()
    assert error.value.finding.code == "search-without-result"
    assert "diverged" in error.value.finding.why
    assert outcomes(tuner) == ["diverged", "diverged"]


def test_trials_that_the_user_fails_are_recorded_and_too_many_in_a_row_stop(tmp_path):
    def unlucky(hp):
        raise keras_tuner.errors.FailedTrialError(f"{hp.Int('units', 2, 9)} units are unlucky.")

    def picky(hp):
        return build(hp) if hp.Int("units", 2, 9) == 2 else unlucky(hp)

    tuner, run = search(picky, tmp_path, max_trials=9)
    with pytest.raises(ktk.SearchError) as error:
        run()
    assert error.value.finding.code == "too-many-failures"
    assert "units are unlucky" in error.value.finding.what
    assert outcomes(tuner)[-3:] == ["failed"] * 3
    assert outcomes(tuner)[0] == "finished"


class OnlyBatch(TunedBatch):
    """Searches nothing but the batch."""

    def build(self, hp):
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])

    def compile_args(self, hp):
        return {"optimizer": "sgd", "loss": "mse"}


class Hungry(OnlyBatch):
    """Asks for memory that no machine has, from eight rows a replica on."""

    sizes = (2, 8, 16)

    def build(self, hp):
        def hungry(x):
            rows = tf.cast(tf.shape(x)[0], tf.int64)
            much = tf.where(rows >= 8, tf.constant(2**50, tf.int64), tf.constant(1, tf.int64))
            return x + 0.0 * tf.reduce_sum(tf.random.uniform([much]))

        inputs = keras.Input((3,))
        hidden = keras.layers.Lambda(hungry, output_shape=(3,))(inputs)
        return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def test_out_of_memory_is_recorded_with_its_batch_and_larger_ones_are_skipped(tmp_path):
    factory = Hungry(CPU)
    factory.plan = ktk.plan_batches(
        factory.topology, num_samples=64, per_replica_batch_size=2, num_validation_samples=22
    )
    tuner, run = search(factory, tmp_path, max_trials=3, objective="loss", validation_data=None)
    run()
    assert outcomes(tuner) == ["finished", "out of memory", "infeasible"]
    by_batch = {each["hyperparameters"]["per_replica_batch_size"]: each for each in tuner.results()}
    assert by_batch[8]["per_replica_batch_size"] == 8
    assert "per_replica_batch_size=8" in by_batch[16]["reason"]
    assert by_batch[16]["epochs"] == 0


def test_batch_that_the_data_does_not_fill_is_infeasible_and_biases_nothing(tmp_path):
    class TooLarge(OnlyBatch):
        sizes = (2, 100, 32)

    factory = TooLarge(CPU)
    tuner, run = search(factory, tmp_path, max_trials=3)
    run()
    assert outcomes(tuner) == ["finished", "infeasible", "finished"]
    (refused,) = [each for each in tuner.results() if each["outcome"] == "infeasible"]
    assert refused["hyperparameters"]["per_replica_batch_size"] == 100
    assert "100" in refused["reason"]
    assert refused["epochs"] == 0


def test_plan_that_fails_for_the_defaults_stops_the_search(tmp_path):
    class Never(Sum):
        def plan_for(self, hp):
            return dataclasses.replace(self.plan, per_replica_batch_size=1000)

    _, run = search(Never(CPU), tmp_path)
    with pytest.raises(ktk.PlanError):
        run()


def test_search_inside_an_open_scope_is_refused(tmp_path):
    _, run = search(Sum(CPU), tmp_path)
    with CPU.scope(), pytest.raises(ktk.SearchError) as error:
        run()
    assert error.value.finding.code == "search-in-open-scope"


@pytest.mark.parametrize(
    ("model", "arguments", "code"),
    [
        (build, {"epochs": 0}, "not-a-count"),
        (build, {"epochs": "2"}, "not-a-count"),
        (build, {"epoch": 2}, "search-argument"),
        (build, {"global_batch_size": 16}, "search-argument"),
        (build, {"batch_size": 0}, "not-a-count"),
        (Sum, {"epoch": 2}, "search-argument"),
        (build, {"validation_data": None, "validation_split": 1.5}, "validation-split"),
        (Sum, {"validation_data": None, "validation_split": 1.5}, "validation-split"),
    ],
)
def test_a_mistaken_argument_is_named_before_training(model, arguments, code, tmp_path):
    tuner, run = search(model, tmp_path, **arguments)
    with pytest.raises(ktk.KitError) as caught:
        run()
    assert caught.value.finding.code == code
    assert outcomes(tuner) in ([], ["running"])


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"max_trials": 0}, "not-a-count"),
        ({"max_trials": "3"}, "not-a-count"),
        ({"pruner": "median"}, "pruner-unknown"),
    ],
)
def test_a_mistaken_option_is_named_when_the_tuner_is_made(options, code, tmp_path):
    with pytest.raises(ktk.KitError) as caught:
        search(build, tmp_path, **options)
    assert caught.value.finding.code == code


def test_a_split_of_a_dataset_is_named(tmp_path):
    tuner, _ = search(Sum, tmp_path)
    rows = tf.data.Dataset.from_tensor_slices(TRAIN)
    with pytest.raises(ktk.DataError, match="the data is a dataset"):
        tuner.search(rows, validation_split=0.2, epochs=1, verbose=0)


def test_messages_name_what_the_user_wrote(tmp_path):
    def nothing(hp):
        hp.Int("units", 2, 4)

    def uncompiled(hp):
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(hp.Int("units", 2, 4))])

    with pytest.raises(ktk.FactoryError, match="End nothing with `return model`"):
        search(nothing, tmp_path / "a")
    with pytest.raises(ktk.FactoryError, match=r"Compile the model in uncompiled\.$|uncompiled\. "):
        search(uncompiled, tmp_path / "b")
    with pytest.raises(ktk.FactoryError, match="says nothing of how to build a model"):
        search(keras.Sequential([keras.Input((3,))]), tmp_path / "c")


def test_python_generator_is_refused(tmp_path):
    tuner = ktk.RandomSearch(build, "loss", max_trials=1, directory=tmp_path, strategy=CPU)
    data = ((x[None], y[None]) for x, y in zip(*TRAIN, strict=True))
    with pytest.raises(ktk.DataError) as error:
        tuner.search(data, epochs=1, verbose=0)
    assert error.value.finding.code == "search-data-runs-dry"


def test_pruner_and_hyperband_are_refused_together(tmp_path):
    with pytest.raises(ktk.SearchError) as error:
        ktk.Hyperband(build, "loss", directory=tmp_path, pruner=ktk.MedianPruner())
    assert error.value.finding.code == "pruner-with-hyperband"


def test_layers_and_metrics_are_named_alike_in_every_trial(tmp_path):
    def with_auc(hp):
        model = build(hp)
        model.compile("sgd", "mse", metrics=[keras.metrics.MeanAbsoluteError()])
        return model

    objective = keras_tuner.Objective("val_mean_absolute_error", "min")
    before = keras.config.dtype_policy()
    tuner, run = search(with_auc, tmp_path, objective=objective)
    run()
    assert outcomes(tuner) == ["finished", "finished"]
    assert keras.config.dtype_policy() is before
    assert np.isfinite([each["score"] for each in tuner.results()]).all()
