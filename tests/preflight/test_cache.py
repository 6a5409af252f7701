"""The same step is compiled once, whatever its names, and a spoilt answer is compiled anew."""

import keras
import pytest
import tensorflow as tf

import keras_tpu_kit as ktk
from keras_tpu_kit.tpu_compiler import compile_step
from keras_tpu_kit.tpu_compiler.content import model_content
from keras_tpu_kit.tpu_compiler.lowering import lower_step
from keras_tpu_kit.tpu_compiler.program import fingerprint, read_program

BATCH = (tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1)))


def built(units=3, optimizer="adam", loss="mse"):
    layers = [keras.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer, loss)
    model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=BATCH)
    return model


def hash_of(model, batch=BATCH):
    return fingerprint(read_program(lower_step(model, batch).hlo))


def test_the_fingerprint_is_that_of_the_computation_not_of_its_names():
    one = hash_of(built())
    assert hash_of(built()) == one
    assert hash_of(built(units=5)) != one
    assert hash_of(built(optimizer="sgd")) != one
    assert hash_of(built(), (tf.TensorSpec((16, 4)), tf.TensorSpec((16, 1)))) != one
    # A learning rate is a variable, and so no part of the program; a decay is.
    assert hash_of(built(optimizer=keras.optimizers.Adam(0.5))) == one
    assert hash_of(built(optimizer=keras.optimizers.Adam(beta_1=0.5))) != one


def test_a_model_with_code_of_its_own_is_never_known_by_its_config():
    assert model_content(built(), BATCH, "train_step") is not None
    for own in (
        built(loss=lambda y, p: keras.ops.square(y - p)),
        built(loss=type("Mine", (keras.losses.MeanSquaredError,), {"__module__": "keras_own"})()),
        type("Mine", (keras.Sequential,), {})([keras.Input((4,)), keras.layers.Dense(1)]),
        keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: x[:, :1])]),
    ):
        if not own.compiled:
            own.compile("adam", "mse")
            own.optimizer.build(own.trainable_variables)
        assert model_content(own, BATCH, "train_step") is None


@pytest.mark.slow
def test_a_model_that_is_examined_again_in_one_notebook_is_not_traced_again(cache_of_this_run):
    def get_compiled_model():
        layers = [keras.Input((4,)), keras.layers.Dense(9), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
        return model

    told = []
    for _ in range(2):
        told.append([])
        ktk.run_preflight(
            get_compiled_model, tpu="v2-8", global_batch_size=64, progress=told[-1].append
        ).raise_for_errors()
    assert any("tracing" in line for line in told[0])
    assert not any("tracing" in line or "compiling" in line for line in told[1])


@pytest.mark.slow
def test_a_second_compilation_is_read_from_disk(cache_of_this_run):
    model = built(units=7, optimizer=keras.optimizers.Adam(name="adam"))
    told = []
    first = compile_step(model, BATCH, "v2-8", progress=told.append)
    assert not first.from_cache and "compiling train_step for v2-8" in told

    told.clear()
    again = compile_step(model, BATCH, "v2-32", progress=told.append)
    assert again.from_cache and told == []
    assert (again.tpu, again.total_bytes) == ("v2-32", first.total_bytes)
    assert again.arguments == first.arguments and again.program == first.program

    # What metrics and optimizer would hold is not needed to know the model again.
    bare = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    bare.compile(keras.optimizers.Adam(name="adam"), "mse")
    known = compile_step(bare, BATCH, "v2-8", prepare=lambda: told.append("prepared"))
    assert known.from_cache and told == [] and not bare.optimizer.built
    assert known.role_bytes("optimizer") == first.role_bytes("optimizer") > 0

    # Other names, so that the config differs; the program is the same.
    renamed = compile_step(built(units=7), BATCH, "v2-8", progress=told.append)
    assert renamed.from_cache and told == ["tracing train_step"]

    for answer in cache_of_this_run.glob("*.json"):
        answer.write_text("{")
    assert not compile_step(model, BATCH, "v2-8", with_hlo=True).from_cache
    with_text = compile_step(model, BATCH, "v2-8", with_hlo=True)
    assert with_text.from_cache and "HloModule" in with_text.hlo
