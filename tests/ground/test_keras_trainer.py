"""What stock Keras does on replicas today, where the replicated step rests on it.

When an upgrade mends one of these, its test fails, and the workaround can go.
"""

from __future__ import annotations

import platform
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version

from tests.ground.linear import LEARNING_RATE, right_slope, rows, slope, stock
from tests.replicas import replicas


def fit(model, x, y, **kwargs):
    return model.fit(x, y, batch_size=len(x), shuffle=False, verbose=0, **kwargs)


def test_the_step_before_the_first_averages_a_batch_over_replicas():
    with pytest.raises(tf.errors.InvalidArgumentError, match="same size and shape"):
        fit(stock(), *rows(3))


@pytest.mark.parametrize("value", [b"a", True])
def test_the_step_before_the_first_cannot_average_strings_and_bools(value):
    with replicas(2).scope():
        inputs = keras.Input((1,), dtype="string" if value == b"a" else "bool")
        outputs = keras.layers.Lambda(lambda x: tf.ones((tf.shape(x)[0], 1)), (1,))(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(outputs))
        model.compile("sgd", "mse")
    dataset = tf.data.Dataset.from_tensors((tf.constant([[value], [value]]), tf.ones((2, 1))))
    with pytest.raises((TypeError, tf.errors.OpError, ValueError)):
        model.fit(dataset, verbose=0, shuffle=False)


def test_a_scalar_loss_is_summed_over_replicas():
    model = stock(loss=lambda y, p: tf.reduce_mean(tf.square(y - p)))
    x, y = rows(4)
    history = fit(model, x, y)
    assert history.history["loss"][0] == pytest.approx(2 * np.mean(x**2))
    assert 1 - slope(model) == pytest.approx(2 * (1 - right_slope(x)))


def test_rows_in_short_shards_weigh_more():
    model = stock()
    x, y = rows(2)
    fit(model, x, y)  # The first batch must be even.
    model.set_weights([np.ones((1, 1))])
    x, y = rows(3)
    dataset = replicas(2).experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices((x, y)).batch(3)
    )
    model.train_function(iter(dataset))
    # Shards are [1, 2] and [3]: the mean of the shards' means.
    wrong = 1 - LEARNING_RATE * np.mean([np.mean([2, 8]), 18])
    assert slope(model) == pytest.approx(wrong)
    assert abs(slope(model) - right_slope(x)) > 0.1


def test_each_replica_clips_its_own_part_of_the_gradient():
    model = stock({"clipnorm": 4.0})
    fit(model, *rows(2))
    # Half gradients 1 and 4 are below the norm; their sum, 5, is not.
    assert slope(model) == pytest.approx(1 - LEARNING_RATE * 5)


def test_accumulation_meets_under_a_condition():
    model = stock({"gradient_accumulation_steps": 2})
    with pytest.raises(RuntimeError, match="merge_call"):
        fit(model, *rows(2))


def test_dropout_draws_the_same_mask_on_every_replica():
    strategy = replicas(2)
    with strategy.scope():
        dropout = keras.layers.Dropout(0.5, seed=1)
        dropout.build((None, 64))
    both = strategy.run(lambda: dropout(tf.ones((1, 64)), training=True))
    first, second = strategy.experimental_local_results(both)
    np.testing.assert_array_equal(first, second)


def test_whole_batches_go_to_every_replica():
    model = stock()
    x, y = rows(4)
    fit(model, x, y)
    assert len(model.predict_on_batch(x)) == 2 * len(x)


def test_a_generator_loses_batches():
    seen = []

    class Spy(keras.layers.Layer):
        def call(self, x):
            tf.py_function(lambda row: seen.append(int(row)), [x[0, 0]], [])
            return x

    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), Spy(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    batches = ((np.full((4, 1), i, "float32"), np.zeros((4, 1), "float32")) for i in range(6))
    with pytest.warns(UserWarning, match="ran out of data"):
        model.fit(batches, verbose=0, shuffle=False)
    assert set(seen) < set(range(6))


def test_moving_statistics_are_not_brought_together():
    with replicas(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.BatchNormalization()])
        model.compile(keras.optimizers.SGD(0.0), "mse")
    fit(model, *rows(4))
    means = [float(part[0]) for part in model.layers[0].moving_mean.value.values]
    assert means == pytest.approx([0.01 * 1.5, 0.01 * 3.5])


def test_means_by_sample_weight_are_means_of_means():
    model = stock(loss=keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    x, y = rows(2)
    weights = np.array([1.0, 3.0])
    fit(model, x, y, sample_weight=weights)
    assert slope(model) == pytest.approx(1 - LEARNING_RATE * np.mean([2, 8]))
    assert abs(slope(model) - right_slope(x, weights, weights.sum())) > 0.1


def test_logs_in_an_epoch_are_not_those_of_all_rows():
    seen = []
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs["rmse"])
    )
    model = stock(metrics=[keras.metrics.RootMeanSquaredError(name="rmse")])
    x, y = rows(4)
    history = fit(model, x, y, callbacks=[keep])
    right = np.sqrt(np.mean(x**2))
    assert history.history["rmse"][0] == pytest.approx(right, rel=1e-5)
    assert abs(float(seen[0]) - right) > 0.1


def test_an_epoch_always_ends_with_a_whole_execution():
    model = stock(steps_per_execution=3, count=1)
    dataset = tf.data.Dataset.from_tensor_slices(rows(4)).repeat().batch(2)
    model.fit(dataset, steps_per_epoch=4, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations.numpy()) == 6


def test_a_graph_knows_each_replicas_copy_of_what_it_touches():
    strategy = replicas(2)
    with strategy.scope():
        seen, branch, other = (tf.Variable(0.0) for _ in range(3))

    def step():
        tf.cond(seen.read_value() > 1, lambda: branch.assign(1.0), lambda: 0.0)

    graph = tf.function(lambda: strategy.run(step), autograph=False).get_concrete_function().graph
    touched = {id(copy) for copy in graph.variables}
    for variable in (seen, branch):
        assert {id(copy) for copy in strategy.experimental_local_results(variable)} <= touched
    assert not {id(copy) for copy in strategy.experimental_local_results(other)} & touched


def test_gradients_reach_an_optimizer_through_apply():
    given = []

    class Keeps(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            given.extend(grads)

    Keeps().apply_gradients([(tf.constant(2.0), keras.Variable(1.0))])
    assert [float(gradient) for gradient in given] == [2.0]


def test_a_convolution_of_no_rows_has_the_shape_of_its_input():
    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 2])])
    def convolve(images):
        return tf.shape(tf.nn.conv2d(images, tf.ones([3, 3, 2, 5]), 1, "VALID"))

    assert convolve(np.zeros((1, 8, 8, 2), "float32")).numpy().tolist() == [1, 6, 6, 5]
    # oneDNN's doing: where it is not built in, or switched off, the shape is right.
    assert convolve(np.zeros((0, 8, 8, 2), "float32")).numpy().tolist() in (
        [0, 8, 8, 2],
        [0, 6, 6, 5],
    )


PAGES = """
import resource
import numpy as np
import tensorflow as tf

def pages():
    # As many that stay leave no free block of the size behind that would be taken instead.
    held = [np.ones(1024 * 1024, "uint8") for _ in range(200)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(1024 * 1024, "uint8")
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = pages()
spec = tf.TensorSpec((), "int32")
next(iter(tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=spec)))
print("PAGES", kept, pages())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="TensorFlow asks glibc for it")
@pytest.mark.skipif(
    Version(tf.__version__) < Version("2.21"), reason="TensorFlow 2.19.1 and 2.20 do not ask for it"
)
def test_a_generator_dataset_has_every_large_block_mapped_anew():
    # In a process of its own: it cannot be taken back entirely.
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    kept, mapped_anew = map(int, done.stdout.partition("PAGES")[2].split())
    assert kept < 2_000
    assert mapped_anew >= 100 * 256  # Pages of 4 KiB in 1 MiB.


def test_a_layer_makes_errors_anew_of_their_text_unless_they_are_marked():
    class Fails(keras.layers.Layer):
        marks = False

        def call(self, inputs):
            error = ValueError(("no", "text"))
            if self.marks:
                error._keras_call_info_injected = True
            raise error

    layer = Fails()
    for layer.marks, kind in ((False, str), (True, tuple)):
        with pytest.raises(ValueError) as caught:
            layer(np.ones((2, 3), "float32"))
        assert isinstance(caught.value.args[0], kind)


def test_a_metric_keeps_its_function_its_variables_and_its_parts_by_these_names():
    def function(y_true, y_pred):
        return y_pred

    model = stock(metrics=[function])
    model.evaluate(*rows(8), verbose=0)
    (whole,) = [metric for metric in model.metrics if getattr(metric, "metrics", None)]
    (metric,) = whole.metrics
    assert metric._fn is function
    assert metric._variables == metric.variables
    assert metric._metrics == []


def test_a_variable_is_made_by_a_function_that_knows_it():
    given = []

    def create(next_creator, **how):
        given.append(how["initial_value"])
        return next_creator(**how)

    with tf.variable_creator_scope(create):
        variable = keras.Variable(keras.initializers.GlorotUniform(), shape=(3, 2), name="v")
    (made_by,) = given
    names = made_by.__code__.co_freevars
    assert made_by.__closure__[names.index("self")].cell_contents is variable
    assert tuple(variable.shape) == (3, 2)
