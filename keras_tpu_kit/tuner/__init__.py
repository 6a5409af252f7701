"""Searches hyperparameters, every trial inside the scope.

The only place that imports KerasTuner's engine. `strategy_tuner` holds the classes that users
name, `engine` the life of a search, `trial_run` and `epochs` that of one trial; `supervision`
is what the oracle gets to do beside KerasTuner's, in the chief where there is one.
"""

from keras_tpu_kit.tuner.pruning import MedianPruner, PatiencePruner
from keras_tpu_kit.tuner.strategy_tuner import (
    BayesianOptimization,
    GridSearch,
    Hyperband,
    RandomSearch,
    StrategyTuner,
)

__all__ = [
    "BayesianOptimization",
    "GridSearch",
    "Hyperband",
    "MedianPruner",
    "PatiencePruner",
    "RandomSearch",
    "StrategyTuner",
]
