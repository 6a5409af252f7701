"""The models of the matrix, and their data: tiny, without dropout, the same ones every time.

No layer has a bias before BatchNormalization: its gradient is rounding noise, which Adam blows up
to full steps.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def make(name: str) -> keras.Model:
    """Returns a compiled model of the matrix, in the scope that is open."""
    keras.utils.set_random_seed(3)
    return _MAKERS[name]()


def arrays(name: str, rows: int) -> tuple[Any, Any, Any]:
    """Returns inputs, targets and what else `fit` takes for the first rows of a model's data."""
    random = np.random.default_rng(7)
    floatx = keras.config.floatx()
    x = random.normal(size=(64, 5)).astype(floatx)
    y = random.normal(size=(64, 1)).astype(floatx)
    classes = random.integers(0, 3, 64)
    weights = random.uniform(0, 3, 64).astype(floatx)
    images = random.normal(size=(64, 6, 6, 1)).astype(floatx)
    words = random.integers(0, 5, (64, 6))
    if name.startswith("cnn"):
        return images[:rows], y[:rows], {}
    if name == "lstm":
        return words[:rows], y[:rows], {}
    if name == "multi-output":
        return {"x": x[:rows]}, {"value": y[:rows], "kind": classes[:rows]}, {}
    if name == "class_weight":
        return x[:rows], classes[:rows], {"class_weight": {0: 1.0, 1: 2.0, 2: 5.0}}
    if name == "sample_weight":
        return x[:rows], y[:rows], {"sample_weight": weights[:rows]}
    return x[:rows], y[:rows], {}


def _mlp(
    optimizer: Any = None, loss: Any = "mse", model: type[keras.Model] = keras.Model, **kwargs: Any
) -> keras.Model:
    inputs = keras.Input((5,))
    hidden = layers.Dense(4, activation="tanh", kernel_regularizer="l2")(inputs)
    made = model(inputs, layers.Dense(1)(hidden))
    kwargs.setdefault("metrics", ["mae", keras.metrics.RootMeanSquaredError()])
    made.compile(optimizer or keras.optimizers.Adam(0.05), loss, **kwargs)
    return made


def _cnn() -> keras.Model:
    made = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(3, 3, use_bias=False),
            layers.BatchNormalization(synchronized=True),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(1),
        ]
    )
    made.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return made


def _lstm() -> keras.Model:
    made = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Embedding(5, 3, mask_zero=True),
            layers.LSTM(3),
            layers.Dense(1),
        ]
    )
    made.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return made


def _multi_output() -> keras.Model:
    inputs = keras.Input((5,), name="x")
    hidden = layers.Dense(4, activation="tanh")(inputs)
    outputs = {
        "value": layers.Dense(1, name="value")(hidden),
        "kind": layers.Dense(3, activation="softmax", name="kind")(hidden),
    }
    made = keras.Model({"x": inputs}, outputs)
    made.compile(
        keras.optimizers.Adam(0.05),
        {
            "value": keras.losses.MeanSquaredError(reduction="sum"),
            "kind": "sparse_categorical_crossentropy",
        },
        loss_weights={"value": 0.1, "kind": 2.0},
        metrics={"value": ["mae"], "kind": ["accuracy"]},
    )
    return made


def _classifier() -> keras.Model:
    made = keras.Sequential([keras.Input((5,)), layers.Dense(3, activation="softmax")])
    made.compile(
        keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return made


def _one_number(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(y - p))


class OwnStep(keras.Model):
    """Takes its own mean, as guides to custom training do, and tracks it by itself."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - p))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, p)
        return {"loss": self.metrics[0].result(), "largest": loss}


_MAKERS = {
    "mlp": _mlp,
    "cnn with synchronized BatchNormalization": _cnn,
    "lstm": _lstm,
    "multi-output": _multi_output,
    "scalar loss": lambda: _mlp(loss=_one_number),
    "custom train_step": lambda: _mlp(model=OwnStep, metrics=None),
    "sample_weight": lambda: _mlp(
        loss=keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"),
        weighted_metrics=["mae"],
    ),
    "class_weight": _classifier,
    "clipping": lambda: _mlp(keras.optimizers.SGD(0.1, global_clipnorm=0.05)),
    "accumulation": lambda: _mlp(
        keras.optimizers.Adam(0.05, clipnorm=0.05, gradient_accumulation_steps=2)
    ),
}
