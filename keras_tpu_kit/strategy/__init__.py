"""Asks TensorFlow which hardware is here, and how to train on it.

The only place that initialises hardware and reads environment variables about it. TensorFlow is
imported by the functions, not by these modules, since what its TPU wheel does when it is imported
depends on a variable that is set first.
"""

from keras_tpu_kit.strategy.capability import least_compute_capability
from keras_tpu_kit.strategy.description import describe_strategy
from keras_tpu_kit.strategy.detection import detect_strategy, explain_strategy

__all__ = ["describe_strategy", "detect_strategy", "explain_strategy", "least_compute_capability"]
