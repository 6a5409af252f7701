"""The whole recipe in one call does what its four steps do."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from tests.factory.test_factory import Linear, X, Y
from tests.replicas import replicas


def test_one_call_equals_the_four_steps():
    strategy = replicas(2)
    run = Linear(strategy).fit(
        (X, Y), validation_data=(X[:37], Y[:37]), global_batch_size=16, epochs=2, seed=3, verbose=0
    )

    keras.utils.set_random_seed(3)
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy),
        num_samples=64,
        global_batch_size=16,
        num_validation_samples=37,
    )
    assert run.plan == plan
    model = Linear(strategy, plan).create()
    train = ktk.make_dataset((X, Y), plan, seed=3)
    valid = ktk.make_dataset((X[:37], Y[:37]), plan, training=False)
    history = model.fit(train, validation_data=valid, epochs=2, verbose=0, **plan.fit_args())
    np.testing.assert_allclose(run.history.history["loss"], history.history["loss"], rtol=1e-6)
    np.testing.assert_allclose(
        run.history.history["val_loss"], history.history["val_loss"], rtol=1e-6
    )
    for one, four in zip(run.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, four, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("data", [[X, Y], X, {"x": X}])
def test_data_without_targets_is_refused_before_training(data):
    with pytest.raises(ktk.DataError, match="Pass a tuple, \\(x, y\\)") as caught:
        Linear("cpu").fit(data, global_batch_size=16, verbose=0)
    assert caught.value.finding.code == "targets-missing"


def test_the_validation_loss_counts_each_row_once():
    run = Linear(replicas(2)).fit(
        (X, Y), validation_data=(X[:37], Y[:37]), global_batch_size=16, seed=3, verbose=0
    )
    predicted = run.model.predict(X[:37], verbose=0)
    by_hand = float(np.mean((predicted - Y[:37]) ** 2))
    assert run.history.history["val_loss"][-1] == pytest.approx(by_hand, rel=1e-5)


def test_validation_data_that_does_not_tell_its_rows_is_told_them():
    def rows():
        yield from zip(X[:37], Y[:37], strict=True)

    specs = (tf.TensorSpec(X.shape[1:], X.dtype), tf.TensorSpec(Y.shape[1:], Y.dtype))
    valid = tf.data.Dataset.from_generator(rows, output_signature=specs)
    run = Linear(replicas(2)).fit(
        (X, Y),
        validation_data=valid,
        num_validation_samples=37,
        global_batch_size=16,
        seed=3,
        verbose=0,
    )
    assert run.plan.num_validation_samples == 37
    by_hand = float(np.mean((run.model.predict(X[:37], verbose=0) - Y[:37]) ** 2))
    assert run.history.history["val_loss"][-1] == pytest.approx(by_hand, rel=1e-5)


def test_the_run_tells_its_plan_its_rates_and_what_is_worth_knowing(capsys):
    run = Linear(replicas(2)).fit((X[:60], Y[:60]), global_batch_size=16, epochs=2, verbose=2)
    assert [finding.code for finding in run.report.findings] == ["rows-dropped"]
    shown = capsys.readouterr().out
    assert "12 of 60 rows" in shown
    assert run.throughput.rows + 16 * run.model.steps_per_execution == 2 * 48
    assert "samples_per_second" in run.history.history


def test_a_factory_with_a_plan_refuses_another_size():
    strategy = replicas(2)
    plan = ktk.plan_batches(ktk.describe_strategy(strategy), num_samples=64, global_batch_size=16)
    with pytest.raises(ktk.PlanError, match="global_batch_size=32 is passed") as caught:
        Linear(strategy, plan).fit((X, Y), global_batch_size=32)
    assert caught.value.finding.code == "plan-said-twice"


def test_a_second_call_plans_anew_from_its_own_data():
    factory = Linear(replicas(2))
    assert factory.fit((X, Y), global_batch_size=16, verbose=0).plan.num_samples == 64
    assert factory.fit((X[:32], Y[:32]), global_batch_size=8, verbose=0).plan.num_samples == 32
    assert factory.plan is None


@pytest.mark.parametrize(
    ("argument", "cure"),
    [
        ({"batch_size": 16}, "global_batch_size"),
        ({"sample_weight": np.ones(64)}, "(x, y, sample_weight)"),
        ({"validation_split": 0.1}, "validation_data=(x, y)"),
    ],
)
def test_what_the_plan_decides_is_not_taken_by_keras_s_names(argument, cure):
    with pytest.raises(ktk.PlanError) as caught:
        Linear(replicas(2)).fit((X, Y), **argument)
    assert caught.value.finding.code == "fit-argument-decided"
    assert cure in caught.value.finding.fix

    class Hooked(Linear):
        def fit_args(self, hp):
            return argument

    with pytest.raises(ktk.PlanError, match=next(iter(argument))):
        Hooked(replicas(2)).fit((X, Y), global_batch_size=16)


def test_rows_keep_their_order_where_they_are_not_to_be_shuffled():
    seen = []

    class Sees(keras.Model):
        def train_step(self, data):
            x, _ = data
            tf.py_function(lambda rows: seen.append(rows.numpy()), [x], [])
            return super().train_step(data)

    class Seeing(Linear):
        def build(self, hp):
            inputs = keras.Input(X.shape[1:])
            return Sees(inputs, keras.layers.Dense(Y.shape[1])(inputs))

    factory = Seeing(tf.distribute.get_strategy())
    factory.fit((X, Y), global_batch_size=16, shuffle=False, verbose=0)
    np.testing.assert_array_equal(np.concatenate(seen), X)


@pytest.mark.parametrize(
    ("returned", "code"),
    [
        (None, "hook-no-arguments"),
        ({"epoch": 2}, "hook-unknown-argument"),
        ({"validation_data": (X, Y)}, "hook-unknown-argument"),
    ],
)
def test_a_fit_args_hook_that_returns_the_wrong_thing_is_explained(returned, code):
    class Hooked(Linear):
        def fit_args(self, hp):
            return returned

    with pytest.raises(ktk.FactoryError) as caught:
        Hooked(replicas(2)).fit((X, Y), global_batch_size=16)
    assert caught.value.finding.code == code


def test_callbacks_come_as_keras_takes_them():
    class Begins(keras.callbacks.Callback):
        began = 0

        def on_train_begin(self, logs=None):
            type(self).began += 1

    class Hooked(Linear):
        def fit_args(self, hp):
            return {"callbacks": Begins(), "verbose": 0}

    Hooked(replicas(2)).fit((X, Y), global_batch_size=16, callbacks=None)
    Hooked(replicas(2)).fit((X, Y), global_batch_size=16, callbacks=Begins())
    assert Begins.began == 3


@pytest.mark.parametrize(("said", "argument"), [(640, "num_samples"), (48, "num_samples")])
def test_rows_that_were_miscounted_are_told_by_number(said, argument):
    specs = (tf.TensorSpec(X.shape[1:], X.dtype), tf.TensorSpec(Y.shape[1:], Y.dtype))
    data = tf.data.Dataset.from_generator(lambda: zip(X, Y, strict=True), output_signature=specs)
    with pytest.raises(ktk.DataError) as caught:
        Linear(replicas(2)).fit(data, num_samples=said, global_batch_size=16, epochs=2, verbose=0)
    assert caught.value.finding.code == "rows-not-planned"
    assert f"{argument}={said}" in caught.value.finding.what
