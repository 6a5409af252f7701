"""A factory's models live on all replicas, whatever the hooks return is explained."""

import dataclasses

import keras
import keras_tuner
import numpy as np
import pytest

import keras_tpu_kit as ktk
from keras_tpu_kit.placement import placement_findings
from keras_tpu_kit.replication import is_replicated
from tests.replicas import replicas

X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = (X @ [[1.0], [-2.0], [0.5]]).astype("float32")


class Linear(ktk.ModelFactory):
    def build(self, hp):
        units = hp.Int("units", 1, 8, default=4)
        return keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(units), keras.layers.Dense(1)]
        )

    def compile_args(self, hp):
        return {"optimizer": keras.optimizers.SGD(hp.Float("lr", 0.01, 0.1)), "loss": "mse"}


def plan_on(strategy, **sizes):
    topology = ktk.describe_strategy(strategy)
    return ktk.plan_batches(topology, num_samples=64, **(sizes or {"global_batch_size": 16}))


def test_a_model_is_made_in_scope_compiled_replicated_and_fed_by_the_plan():
    strategy = replicas(2)
    plan = plan_on(strategy)
    model = Linear(strategy, plan).create()
    assert model.distribute_strategy.num_replicas_in_sync == 2
    assert placement_findings(model) == ()
    assert is_replicated(model)
    assert model.steps_per_execution == plan.steps_per_execution == 2
    assert model.jit_compile is False


def test_hyperparameters_answer_with_defaults_or_with_those_of_a_search():
    factory = Linear("cpu")
    assert factory.create().layers[0].units == 4
    hp = keras_tuner.HyperParameters()
    hp.Fixed("units", 7)
    hp.Fixed("lr", 0.05)
    model = factory.create(hp)
    assert model.layers[0].units == 7
    assert float(model.optimizer.learning_rate) == pytest.approx(0.05)


def test_a_plan_for_hyperparameters_decides_the_steps():
    class Tuned(Linear):
        def plan_for(self, hp):
            size = hp.Choice("per_replica_batch_size", [8, 4, 16])
            return dataclasses.replace(self.plan, per_replica_batch_size=size)

    strategy = replicas(2)
    factory = Tuned(strategy, plan_on(strategy))
    hp = keras_tuner.HyperParameters()
    hp.Fixed("per_replica_batch_size", 16)
    assert factory.plan_for(hp).steps_per_epoch == 2
    assert factory.create(hp).steps_per_execution == factory.plan_for(hp).steps_per_execution


def test_a_saved_model_comes_back_with_its_optimizer_on_all_replicas(tmp_path):
    strategy = replicas(2)
    factory = Linear(strategy, plan_on(strategy))
    model = factory.create()
    model.fit(ktk.make_dataset((X, Y), factory.plan, seed=1), verbose=0, **factory.plan.fit_args())
    model.save(tmp_path / "model.keras")
    loaded = factory.load(tmp_path / "model.keras")
    assert loaded.distribute_strategy.num_replicas_in_sync == 2
    assert placement_findings(loaded) == ()
    assert is_replicated(loaded)
    assert int(loaded.optimizer.iterations.numpy()) == 4
    for saved, restored in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(saved, restored)


def test_a_function_that_returns_a_compiled_model_is_a_factory():
    def get_compiled_model():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    strategy = replicas(2)
    model = ktk.ModelFactory.from_function(get_compiled_model, strategy).create()
    assert placement_findings(model, strategy) == ()
    assert is_replicated(model)

    def build_model(hp):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(hp.Int("units", 2, 4))])
        model.compile("sgd", "mse")
        return model

    assert ktk.ModelFactory.from_function(build_model, "cpu").create().output_shape == (None, 2)


@pytest.mark.parametrize("given", [keras.Sequential([keras.Input((3,))]), "Classifier", None])
def test_a_model_that_exists_is_no_function(given):
    with pytest.raises(ktk.FactoryError, match="without calling it") as caught:
        ktk.ModelFactory.from_function(given, "cpu")
    assert caught.value.finding.code == "hook-no-function"


def test_what_is_made_outside_the_scope_is_named():
    optimizer = keras.optimizers.SGD(0.1)

    class Shared(Linear):
        def compile_args(self, hp):
            return {"optimizer": optimizer, "loss": "mse"}

    with pytest.raises(ktk.FactoryError, match="optimizer 'sgd") as caught:
        Shared(replicas(2)).create()
    assert caught.value.finding.code == "variable-outside-scope"


class NoBuild(ktk.ModelFactory):
    pass


class NoReturn(Linear):
    def build(self, hp):
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


class NotAModel(Linear):
    def build(self, hp):
        return keras.layers.Dense(1)


class WithoutHp(Linear):
    def build(self):
        return None


class NotCompiled(ktk.ModelFactory):
    def build(self, hp):
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])


class NoDict(Linear):
    def compile_args(self, hp):
        return "adam", "mse"


class UnknownArgument(Linear):
    def compile_args(self, hp):
        return {"optimizer": "adam", "loss": "mse", "metric": ["mae"]}


class NoPlan(Linear):
    def plan_for(self, hp):
        return 1200


@pytest.mark.parametrize(
    ("factory", "code", "words"),
    [
        (NoBuild, "hook-missing", "NoBuild.build"),
        (NoReturn, "hook-no-model", "return model"),
        (NotAModel, "hook-no-model", "'Dense'"),
        (WithoutHp, "hook-without-hp", "hp"),
        (NotCompiled, "hook-not-compiled", "compile_args"),
        (NoDict, "hook-no-arguments", "not a dict"),
        (UnknownArgument, "hook-unknown-argument", "'metric'"),
        (NoPlan, "hook-no-plan", "1200"),
    ],
)
def test_a_hook_that_breaks_its_contract_is_explained(factory, code, words):
    with pytest.raises(ktk.FactoryError, match=words) as caught:
        factory("cpu").create()
    assert caught.value.finding.code == code


def test_an_error_of_the_user_s_own_code_comes_through_untouched():
    class Broken(Linear):
        def build(self, hp):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Broken("cpu").create()


def test_xla_that_was_asked_for_is_refused_on_several_replicas():
    class Jit(Linear):
        def compile_args(self, hp):
            return {**super().compile_args(hp), "jit_compile": True}

    with pytest.raises(ktk.FactoryError, match="jit_compile=True"):
        Jit(replicas(2)).create()
    assert Jit("cpu").create().jit_compile is True


def test_without_the_kit_s_step_what_stock_keras_gets_wrong_is_refused_or_named():
    class Scalar(Linear):
        def compile_args(self, hp):
            def my_loss(y, p):
                return keras.ops.mean(keras.ops.square(y - p))

            return {"optimizer": "sgd", "loss": my_loss}

    with pytest.raises(ktk.FactoryError, match="'my_loss' returns one number"):
        Scalar(replicas(2), replicated=False).create()

    class Clipped(Linear):
        def compile_args(self, hp):
            return {"optimizer": keras.optimizers.SGD(0.1, clipnorm=1.0), "loss": "mse"}

    factory = Clipped(replicas(2), replicated=False)
    model = factory.create()
    assert not is_replicated(model)
    assert [finding.code for finding in factory.findings(model)] == ["clipping-per-replica"]


def test_steps_that_do_not_fill_the_epoch_are_refused_before_training():
    class Fused(Linear):
        def compile_args(self, hp):
            return {**super().compile_args(hp), "steps_per_execution": 3}

    with pytest.raises(ktk.FactoryError, match="steps_per_execution=3"):
        Fused("cpu", plan_on(replicas(1))).create()


def test_a_class_may_say_its_options_and_a_call_overrules_it():
    class Halved(Linear):
        precision = "mixed_bfloat16"
        synchronize_batch_norm = True
        replicated = False

    factory = Halved("cpu")
    assert (factory.precision, factory.synchronize_batch_norm, factory.replicated) == (
        "mixed_bfloat16",
        True,
        False,
    )
    assert factory.create().layers[0].dtype_policy.name == "mixed_bfloat16"
    told = Halved("cpu", precision="float32", synchronize_batch_norm=False, replicated=True)
    assert (told.precision, told.synchronize_batch_norm, told.replicated) == (
        "float32",
        False,
        True,
    )


def test_precision_holds_for_the_model_alone():
    before = keras.config.dtype_policy().name
    model = Linear("cpu", precision="mixed_bfloat16").create()
    assert model.layers[0].dtype_policy.name == "mixed_bfloat16"
    assert model.layers[0].kernel.dtype == "float32"
    assert keras.config.dtype_policy().name == before
    assert Linear("cpu", precision="auto").create().layers[0].dtype_policy.name == "float32"
    with pytest.raises(ktk.FactoryError, match="float12"):
        Linear("cpu", precision="float12").create()


def test_every_batch_normalization_is_synchronized_where_asked():
    class Normed(Linear):
        def build(self, hp):
            return keras.Sequential(
                [keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
            )

    model = Normed(replicas(2), synchronize_batch_norm=True).create()
    assert model.layers[0].synchronized
