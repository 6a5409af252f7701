"""Turns arrays or a dataset into what a plan asks for: shuffled, repeated, batched, sharded."""

from keras_tpu_kit.datasets.inspection import Column, DataFacts, inspect_data

__all__ = ["Column", "DataFacts", "inspect_data"]
