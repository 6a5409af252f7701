"""Train Keras models on TPUs and several GPUs as you would on one device.

Detect the hardware, plan the batches, build the model in scope, train:

```python
import keras_tpu_kit as ktk

run = MyFactory().fit((x, y), validation_data=(xv, yv), global_batch_size=1200, epochs=3)
```

Importing this package costs milliseconds; TensorFlow is imported when a name is first used
that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_tpu_kit import backend as _backend
from keras_tpu_kit._version import __version__
from keras_tpu_kit.errors import (
    BackendError,
    DataError,
    FactoryError,
    Finding,
    HardwareError,
    KitError,
    PlanError,
    PreflightError,
    ReplicationError,
    SearchError,
)
from keras_tpu_kit.learning_rate import scaled_learning_rate, warmup_args
from keras_tpu_kit.plan import BatchPlan, plan_batches
from keras_tpu_kit.throughput import CHIPS, Chip, Throughput
from keras_tpu_kit.topology import Topology

if TYPE_CHECKING:
    from keras_tpu_kit.callbacks import (
        BatchSizeCheck,
        StepsPerEpochCheck,
        StopOnPreemption,
        ThroughputMonitor,
        callbacks_for,
        plan_callbacks,
    )
    from keras_tpu_kit.datasets import make_dataset, plan_for_data
    from keras_tpu_kit.factory import ModelFactory, Run
    from keras_tpu_kit.preflight import run_preflight
    from keras_tpu_kit.replication import replicate
    from keras_tpu_kit.strategy import describe_strategy, detect_strategy
    from keras_tpu_kit.tpu_compiler import CompiledStep
    from keras_tpu_kit.tuner import (
        BayesianOptimization,
        GridSearch,
        Hyperband,
        MedianPruner,
        PatiencePruner,
        RandomSearch,
        StrategyTuner,
    )

# Names whose modules import TensorFlow, and so are imported on first use.
_ABOVE_THE_WALL = {
    "BatchSizeCheck": "callbacks",
    "CompiledStep": "tpu_compiler",
    "BayesianOptimization": "tuner",
    "GridSearch": "tuner",
    "Hyperband": "tuner",
    "MedianPruner": "tuner",
    "ModelFactory": "factory",
    "PatiencePruner": "tuner",
    "RandomSearch": "tuner",
    "Run": "factory",
    "StepsPerEpochCheck": "callbacks",
    "StopOnPreemption": "callbacks",
    "StrategyTuner": "tuner",
    "ThroughputMonitor": "callbacks",
    "callbacks_for": "callbacks",
    "describe_strategy": "strategy",
    "detect_strategy": "strategy",
    "make_dataset": "datasets",
    "plan_callbacks": "callbacks",
    "plan_for_data": "datasets",
    "replicate": "replication",
    "run_preflight": "preflight",
}

__all__ = [
    "CHIPS",
    "BackendError",
    "BatchPlan",
    "BatchSizeCheck",
    "BayesianOptimization",
    "Chip",
    "CompiledStep",
    "DataError",
    "FactoryError",
    "Finding",
    "GridSearch",
    "HardwareError",
    "Hyperband",
    "KitError",
    "MedianPruner",
    "ModelFactory",
    "PatiencePruner",
    "PlanError",
    "PreflightError",
    "RandomSearch",
    "ReplicationError",
    "Run",
    "SearchError",
    "StepsPerEpochCheck",
    "StopOnPreemption",
    "StrategyTuner",
    "Throughput",
    "ThroughputMonitor",
    "Topology",
    "__version__",
    "callbacks_for",
    "describe_strategy",
    "detect_strategy",
    "make_dataset",
    "plan_batches",
    "plan_callbacks",
    "plan_for_data",
    "replicate",
    "run_preflight",
    "scaled_learning_rate",
    "warmup_args",
]


# So that `import keras_tpu_kit as keras_tuner` is all that a search of KerasTuner's needs.
_OF_KERAS_TUNER = (
    "HyperModel",
    "HyperParameters",
    "Objective",
    "Oracle",
    "applications",
    "oracles",
    "synchronized",
)


def __getattr__(name: str) -> Any:
    if name in _OF_KERAS_TUNER:
        _backend.require_tensorflow()
        return getattr(importlib.import_module("keras_tuner"), name)
    if name not in _ABOVE_THE_WALL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _backend.require_tensorflow()
    module = importlib.import_module(f"{__name__}.{_ABOVE_THE_WALL[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
