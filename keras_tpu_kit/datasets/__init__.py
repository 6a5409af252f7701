"""Turns arrays or a dataset into what a plan asks for: shuffled, repeated, batched, sharded."""

from keras_tpu_kit.datasets.inspection import Column, DataFacts, inspect_data
from keras_tpu_kit.datasets.make import make_dataset
from keras_tpu_kit.datasets.planning import plan_for_data

__all__ = ["Column", "DataFacts", "inspect_data", "make_dataset", "plan_for_data"]
