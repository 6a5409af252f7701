"""Keras callbacks that hold `fit` to the plan, one a file."""

from keras_tpu_kit.callbacks.arming import callbacks_for, plan_callbacks
from keras_tpu_kit.callbacks.batch_size_check import BatchSizeCheck
from keras_tpu_kit.callbacks.flops import step_flops
from keras_tpu_kit.callbacks.steps_per_epoch_check import StepsPerEpochCheck
from keras_tpu_kit.callbacks.stop_on_preemption import StopOnPreemption
from keras_tpu_kit.callbacks.throughput_monitor import ThroughputMonitor

__all__ = [
    "BatchSizeCheck",
    "StepsPerEpochCheck",
    "StopOnPreemption",
    "ThroughputMonitor",
    "callbacks_for",
    "plan_callbacks",
    "step_flops",
]
