"""The recurrent counterpart of the Transformer: two LSTMs, the same data, Keras's own masks.

keras-tpu-kit preflight examples/recurrent.py:RecurrentTranslator --tpu v3-8 --batch 1024
"""

import pathlib
import sys

import keras

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from translation import PAD, Translator


class RecurrentTranslator(Translator):
    """One LSTM reads the source, another writes the target from its final state."""

    length = 5
    width = 128

    def build(self, hp):
        source = keras.Input((self.length,), dtype="int32", name="source")
        shifted = keras.Input((self.length,), dtype="int32", name="shifted")
        encoder = keras.layers.LSTM(self.width, return_state=True, name="reader")
        _, *state = encoder(self.embedded(source, "source"))
        decoder = keras.layers.LSTM(self.width, return_sequences=True, name="writer")
        decoded = decoder(self.embedded(shifted, "target"), initial_state=state)
        logits = keras.layers.Dense(self.vocabulary, name="words")(decoded)
        return keras.Model({"source": source, "shifted": shifted}, logits)

    def compile_args(self, hp):
        # The mask of the embeddings reaches loss and metrics by itself, for each word.
        return {
            **super().compile_args(hp),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalAccuracy("masked_accuracy")],
        }

    def embedded(self, words, name):
        layer = keras.layers.Embedding(
            self.vocabulary, self.width, mask_zero=PAD == 0, name=f"{name}_embedding"
        )
        return layer(words)
