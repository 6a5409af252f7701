"""Each example with one fault that people really make, and nothing else changed."""

import keras
import numpy as np
import recurrent
import resnet50
import tensorflow as tf
import translation
from conftest import Digits


class PythonInDigits(Digits):
    """The pixels are scaled by a function of NumPy's."""

    def build(self, hp):
        def scaled(x):
            y = tf.py_function(lambda t: t.numpy() / max(t.numpy().max(), 1), [x], tf.float32)
            return tf.ensure_shape(y, x.shape)

        scale = keras.layers.Lambda(scaled, output_shape=(self.pixels,), name="scaled")
        return keras.Sequential([keras.Input((self.pixels,)), scale, super().build(hp)])


class Decoded(keras.layers.Layer):
    """Makes images of the bytes of JPEG files."""

    def call(self, files):
        def image(file):
            pixels = tf.io.decode_jpeg(file, channels=3)
            return tf.ensure_shape(tf.cast(pixels, tf.float32) / 255, (32, 32, 3))

        return tf.map_fn(image, files, fn_output_signature=tf.TensorSpec((32, 32, 3)))

    def compute_output_shape(self, shape):
        return (*shape, 32, 32, 3)


class FilesInResNet50(resnet50.SmallResNet50):
    """The model opens the image files itself."""

    def build(self, hp):
        decoded = Decoded(name="decoded", dtype="float32")
        return keras.Sequential([keras.Input((), dtype="string"), decoded, super().build(hp)])

    def data(self):
        (images, labels), _ = super().data()
        files = [tf.io.encode_jpeg((each * 255).astype("uint8")).numpy() for each in images[:64]]
        return (np.array(files), labels[:64]), None


class UncroppedResNet50(resnet50.SmallResNet50):
    """Images come as large as they are, cut to the largest of each batch."""

    def data(self):
        (images, labels), _ = super().data()

        def rows():
            for row in range(64):
                side = 24 + row % 9
                yield images[row, :side, :side], labels[row]

        spec = (tf.TensorSpec((None, None, 3)), tf.TensorSpec((), tf.int32))
        rows = tf.data.Dataset.from_generator(rows, output_signature=spec)
        return rows.padded_batch(64, drop_remainder=True), None


class WordsInTranslator(translation.Translator):
    """The model is fed words, and looks up their numbers itself."""

    def build(self, hp):
        names = [f"word{number}" for number in range(self.vocabulary - 1)]
        look_up = keras.layers.StringLookup(vocabulary=names, name="numbers")
        source = keras.Input((self.length,), dtype="string", name="source")
        shifted = keras.Input((self.length,), dtype="int32", name="shifted")
        inputs = {"source": source, "shifted": shifted}
        body = super().build(hp)
        return keras.Model(inputs, body({"source": look_up(source), "shifted": shifted}))

    def data(self):
        x, y = translation.reversal_data(64, self.length, self.vocabulary)
        words = np.array([[f"word{number}" for number in row] for row in x["source"]])
        return ({**x, "source": words}, y), None


class UnpaddedTranslator(translation.Translator):
    """Each batch is as long as its longest sentence."""

    def data(self):
        x, y = translation.reversal_data(64, self.length, self.vocabulary)

        def rows():
            for source, shifted, target in zip(x["source"], x["shifted"], y, strict=True):
                size = np.count_nonzero(target)
                yield {"source": source[:size], "shifted": shifted[:size]}, target[:size]

        word = tf.TensorSpec((None,), tf.int32)
        spec = ({"source": word, "shifted": word}, word)
        rows = tf.data.Dataset.from_generator(rows, output_signature=spec)
        return rows.padded_batch(64, drop_remainder=True), None


class RaggedRecurrent(recurrent.RecurrentTranslator):
    """Sentences of several lengths come as ragged rows."""

    def data(self):
        x, y = translation.reversal_data(64, self.length, self.vocabulary)
        ragged = {name: tf.RaggedTensor.from_tensor(rows, padding=0) for name, rows in x.items()}
        rows = tf.data.Dataset.from_tensor_slices((ragged, y))
        return rows.batch(64, drop_remainder=True), None


class WordByWordRecurrent(recurrent.RecurrentTranslator):
    """The model stops reading where the longest sentence of the batch ends."""

    def build(self, hp):
        model = super().build(hp)

        def cut(words):
            longest = tf.reduce_max(tf.math.count_nonzero(words, axis=1, dtype=tf.int32))
            places = tf.range(longest)
            return tf.pad(tf.gather(words, places, axis=1), [[0, 0], [0, self.length - longest]])

        cuts = keras.layers.Lambda(cut, output_shape=(self.length,), name="cut", dtype="int32")
        source = keras.Input((self.length,), dtype="int32", name="source")
        shifted = keras.Input((self.length,), dtype="int32", name="shifted")
        outputs = model({"source": cuts(source), "shifted": shifted})
        return keras.Model({"source": source, "shifted": shifted}, outputs)
