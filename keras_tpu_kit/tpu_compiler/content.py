"""Says in full what a model is, where Keras alone can: then its step need not be traced again."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit import backend


def model_content(model: keras.Model, batch: Any, step: str) -> Any:
    """Returns a description that fixes what a model's step computes, or `None`.

    Only models made of Keras's own layers, losses, metrics and optimizers can be described so:
    code of the user's, a `Lambda` or a custom `train_step` may change without a trace of it here.

    Args:
        model: A compiled model with built layers. Metrics and optimizer make their variables from
            what their configs say.
        batch: Its batch as `tf.TensorSpec`s.
        step: `"train_step"` or `"test_step"`.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> model_content(model, tf.TensorSpec((8, 2)), "train_step")["step"]
    'train_step'
    >>> model.compile("sgd", lambda y, p: keras.ops.square(y - p))
    >>> model_content(model, tf.TensorSpec((8, 2)), "train_step") is None
    True
    """
    if not all(_is_keras(type(part)) for part in (model, *model._flatten_layers())):
        return None
    try:
        with warnings.catch_warnings():
            # Keras warns that a lambda cannot be saved; nothing is saved here.
            warnings.simplefilter("ignore")
            config = keras.saving.serialize_keras_object(model)
            optimizer = keras.saving.serialize_keras_object(model.optimizer)
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None  # Something in it does not say what it is.
    if not (_is_all_keras(config) and _is_all_keras(optimizer)):
        return None
    return {
        "step": step,
        "config": config,
        "optimizer": optimizer,
        "batch": [(tuple(spec.shape), spec.dtype.name) for spec in tf.nest.flatten(batch)],
        "structure": repr(tf.nest.map_structure(lambda spec: 0, batch)),
        "variables": [(tuple(v.shape), str(v.dtype), bool(v.trainable)) for v in model.variables],
        "floatx": keras.config.floatx(),
        "versions": [keras.version(), backend.installed_wheels()],
    }


def _is_keras(kind: type) -> bool:
    foreign = (keras.layers.Lambda, keras.layers.TorchModuleWrapper)
    return _is_of_keras(kind.__module__) and kind not in foreign


def _is_of_keras(module: str) -> bool:
    # A user's own may be called keras_model.
    return module.partition(".")[0] == "keras"


def _is_all_keras(config: Any) -> bool:
    """Whether a config names nothing but Keras's own objects."""
    if isinstance(config, (list, tuple)):
        return all(map(_is_all_keras, config))
    if not isinstance(config, dict):
        return config is None or isinstance(config, (str, int, float, bool))
    module = config.get("module")
    is_foreign = config.get("class_name") in ("function", "__lambda__", "Lambda") or (
        isinstance(module, str) and module != "builtins" and not _is_of_keras(module)
    )
    return not is_foreign and all(map(_is_all_keras, config.values()))
