"""A chief that hands out a search's trials, and the workers' side of it."""

from keras_tpu_kit.tuner.service.client import ChiefClient, connect
from keras_tpu_kit.tuner.service.server import ChiefServer

__all__ = ["ChiefClient", "ChiefServer", "connect"]
