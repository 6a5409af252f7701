"""A Transformer that translates sequences, here into their own reversal.

keras-tpu-kit preflight examples/translation.py:Translator --tpu v3-8 --batch 1024
"""

import keras
import numpy as np
from keras import ops

import keras_tpu_kit as ktk

PAD, START = 0, 1
FIRST_WORD = 2


@keras.saving.register_keras_serializable("translation")
class PositionedEmbedding(keras.layers.Layer):
    """Adds a learned vector of the place to a learned vector of the word."""

    def __init__(self, vocabulary, length, width, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary, self.length, self.width = vocabulary, length, width
        self.words = keras.layers.Embedding(vocabulary, width)
        self.places = keras.layers.Embedding(length, width)

    def call(self, words):
        return self.words(words) + self.places(ops.arange(self.length))

    def get_config(self):
        own = {"vocabulary": self.vocabulary, "length": self.length, "width": self.width}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("translation")
def masked_crossentropy(words, logits):
    """Returns the loss of each row over the places that hold a word."""
    each = keras.losses.sparse_categorical_crossentropy(words, logits, from_logits=True)
    is_word = ops.cast(ops.not_equal(words, PAD), each.dtype)
    return ops.sum(each * is_word, axis=-1) / ops.maximum(ops.sum(is_word, axis=-1), 1)


@keras.saving.register_keras_serializable("translation")
def masked_accuracy(words, logits):
    """Returns the share of right words of each row."""
    words = ops.cast(words, "int32")
    is_right = ops.cast(ops.equal(words, ops.cast(ops.argmax(logits, -1), "int32")), "float32")
    is_word = ops.cast(ops.not_equal(words, PAD), "float32")
    return ops.sum(is_right * is_word, axis=-1) / ops.maximum(ops.sum(is_word, axis=-1), 1)


def reversal_data(rows, length, vocabulary, seed=0):
    """Returns `((source, shifted target), target)`: rows of several lengths, padded behind."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(length // 2, length + 1, rows)
    source = np.full((rows, length), PAD, "int32")
    target = np.full((rows, length), PAD, "int32")
    for row, size in enumerate(lengths):
        source[row, :size] = draw.integers(FIRST_WORD, vocabulary, size)
        target[row, :size] = source[row, :size][::-1]
    shifted = np.concatenate([np.full((rows, 1), START, "int32"), target[:, :-1]], axis=1)
    return {"source": source, "shifted": shifted}, target


class Translator(ktk.ModelFactory):
    """Encoder and decoder of one block each, sequences of a fixed length."""

    length = 8
    vocabulary = 12
    width = 64
    heads = 4
    rows = 8192

    def build(self, hp):
        source = keras.Input((self.length,), dtype="int32", name="source")
        shifted = keras.Input((self.length,), dtype="int32", name="shifted")
        memory = self.block(self.embedded(source, "source"), None, causal=False)
        decoded = self.block(self.embedded(shifted, "target"), memory, causal=True)
        logits = keras.layers.Dense(self.vocabulary, name="words")(decoded)
        return keras.Model({"source": source, "shifted": shifted}, logits)

    def embedded(self, words, name):
        return PositionedEmbedding(
            self.vocabulary, self.length, self.width, name=f"{name}_embedding"
        )(words)

    def block(self, x, memory, causal):
        """Self-attention, attention to the memory where there is one, two dense layers."""
        x = self.attended(x, x, causal)
        if memory is not None:
            x = self.attended(x, memory, False)
        hidden = keras.layers.Dense(2 * self.width, activation="relu")(x)
        return keras.layers.LayerNormalization()(x + keras.layers.Dense(self.width)(hidden))

    def attended(self, x, memory, causal):
        layer = keras.layers.MultiHeadAttention(self.heads, self.width // self.heads)
        return keras.layers.LayerNormalization()(x + layer(x, memory, use_causal_mask=causal))

    def compile_args(self, hp):
        return {
            "optimizer": keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-2, default=2e-3)),
            "loss": masked_crossentropy,
            "metrics": [masked_accuracy],
        }

    def data(self):
        train = reversal_data(self.rows, self.length, self.vocabulary, seed=0)
        return train, reversal_data(512, self.length, self.vocabulary, seed=1)
