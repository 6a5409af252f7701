"""Builds, compiles and loads models where their variables must live, and trains them.

`model_factory` is the class to subclass; `hooks` holds subclasses to their contract and says
what is wrong in their words; `precision` chooses dtypes for the hardware; `run` is the whole
recipe in one call.
"""

from keras_tpu_kit.factory.model_factory import ModelFactory
from keras_tpu_kit.factory.run import Run

__all__ = ["ModelFactory", "Run"]
