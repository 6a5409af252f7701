"""Small models with one fault each, as people write them."""

import keras
import numpy as np
import tensorflow as tf

FEATURES = 16
CLASSES = 4


def compiled(*layers, inputs=None, loss=None, dtype="float32", **compile_args):
    inputs = keras.Input((FEATURES,), dtype=dtype) if inputs is None else inputs
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    model = keras.Model(inputs, outputs)
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(compile_args.pop("optimizer", "adam"), loss, **compile_args)
    return model


class Calls(keras.layers.Layer):
    """Calls a function of tensors."""

    def __init__(self, function, width=FEATURES, **kwargs):
        super().__init__(**kwargs)
        self.function = function
        self.width = width

    def call(self, x):
        return self.function(x)

    def compute_output_shape(self, shape):
        return (shape[0], self.width)


def calls(function, name, **kwargs):
    return compiled(Calls(function, name=name, **kwargs), keras.layers.Dense(CLASSES))


def string_lookup():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b", "c"], name="words")
    embed = keras.layers.Embedding(5, 8)
    return compiled(
        lookup,
        embed,
        keras.layers.Flatten(),
        keras.layers.Dense(CLASSES),
        inputs=keras.Input((3,), dtype="string"),
    )


def table_lookup():
    """A lookup of numbers, which does not look like a string op."""
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.range(4, dtype=tf.int64), tf.range(4, dtype=tf.int64)
        ),
        0,
    )

    def look_up(x):
        return tf.cast(table.lookup(tf.cast(x, tf.int64)), tf.float32)

    return calls(look_up, "codes")


def py_function():
    def through_python(x):
        y = tf.py_function(lambda t: t.numpy() * 2.0, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)

    return calls(through_python, "through_python")


def numpy_function():
    def through_numpy(x):
        y = tf.numpy_function(lambda t: t * np.float32(2), [x], tf.float32)
        return tf.ensure_shape(y, x.shape)

    return calls(through_numpy, "through_numpy")


def boolean_mask():
    def masked(x):
        kept = tf.boolean_mask(x, x > 0)
        return x * tf.reduce_sum(kept)

    return calls(masked, "keeps_positive")


def unique():
    def counted(x):
        values, _ = tf.unique(tf.reshape(tf.cast(x, tf.int32), [-1]))
        return x * tf.cast(tf.reduce_sum(values), tf.float32)

    return calls(counted, "counts")


def bounded_loop():
    """The number of turns depends on the data, and no gradient goes through them."""

    def halved(x):
        y = tf.stop_gradient(x)
        steps, _ = tf.while_loop(
            lambda i, y: tf.reduce_max(y) > 1.0, lambda i, y: (i + 1, y / 2.0), (0, y)
        )
        return x / (1.0 + tf.cast(steps, tf.float32))

    return calls(halved, "halves")


def unbounded_loop():
    """The gradient needs every turn, and their number depends on the data."""

    def halved(x):
        return tf.while_loop(lambda y: tf.reduce_max(y) > 1.0, lambda y: (tf.sin(y) / 2.0,), (x,))[
            0
        ]

    return compiled(
        keras.layers.Dense(FEATURES), Calls(halved, name="halves"), keras.layers.Dense(CLASSES)
    )


def data_dependent_shape():
    def shortened(x):
        count = tf.cast(tf.reduce_max(x), tf.int32)
        return x * tf.cast(tf.reduce_sum(tf.range(count)), tf.float32)

    return calls(shortened, "shortens")


def float64():
    return compiled(
        keras.layers.Dense(32, activation="relu", dtype="float64", name="wide"),
        keras.layers.Dense(CLASSES),
        dtype="float64",
    )


def ragged_inside():
    def dense(x):
        ragged = tf.RaggedTensor.from_row_lengths(
            tf.reshape(x, [-1]), tf.fill([tf.shape(x)[0]], tf.constant(FEATURES))
        )
        return tf.reshape(ragged.to_tensor(), [-1, FEATURES])

    return calls(dense, "raggeds")


def printing():
    def shown(x):
        tf.print("mean", tf.reduce_mean(x))
        return x

    return calls(shown, "shows")


def image_file():
    """A JPEG is made inside the model."""

    def decoded(x):
        image = tf.cast(tf.reshape(x[0], [4, 4, 1]), tf.uint8)
        size = tf.strings.length(tf.io.encode_jpeg(image))
        return x + tf.cast(size, tf.float32)

    return calls(decoded, "decodes")


def numpy_in_loss():
    def loss(y, p):
        return np.mean(np.square(y - p), axis=-1)

    return compiled(keras.layers.Dense(1), loss=loss)


def python_value_in_loss():
    def loss(y, p):
        worst = float(tf.reduce_max(tf.abs(y - p)))
        return tf.reduce_mean(tf.square(y - p), axis=-1) / worst

    return compiled(keras.layers.Dense(1), loss=loss)


def oversize_embedding():
    return compiled(
        keras.layers.Embedding(20_000_000, 64, name="items"),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(CLASSES),
        inputs=keras.Input((3,), dtype="int32"),
    )


def narrow():
    """Compiles, and pads 16 features to 128."""
    return compiled(
        keras.layers.Dense(16, name="narrow", use_bias=False),
        keras.layers.Dense(CLASSES, name="wide"),
        inputs=keras.Input((1024,)),
    )
