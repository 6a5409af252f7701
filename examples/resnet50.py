"""ResNet50 for small images, as the sources train it: RMSprop, max pooling, sparse labels.

keras-tpu-kit preflight examples/resnet50.py:SmallResNet50 --tpu v3-8 --batch 1024
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import keras_tpu_kit as ktk


class SmallResNet50(ktk.ModelFactory):
    """ResNet50 at 32 x 32 pixels, ten classes."""

    size = 32
    classes = 10

    def build(self, hp):
        body = keras.applications.ResNet50(
            include_top=False, weights=None, input_shape=(self.size, self.size, 3), pooling="max"
        )
        for layer in body.layers:
            if isinstance(layer, keras.layers.BatchNormalization):
                # With Keras's 0.99, what validation uses lags a hundred steps behind.
                layer.momentum = 0.9
        return keras.Sequential([body, keras.layers.Dense(self.classes)])

    def compile_args(self, hp):
        return {
            "optimizer": keras.optimizers.RMSprop(hp.Float("lr", 1e-5, 1e-2, default=1e-3)),
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": ["accuracy"],
        }

    def data(self):
        """Handwritten digits of 8 x 8 pixels, drawn larger."""
        images, labels = load_digits(return_X_y=True)
        images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
        scale = self.size // 8
        images = images.repeat(scale, axis=1).repeat(scale, axis=2).repeat(3, axis=3)
        order = np.random.default_rng(0).permutation(len(images))
        images, labels = images[order], labels[order].astype("int32")
        return (images[:1536], labels[:1536]), (images[1536:], labels[1536:])
