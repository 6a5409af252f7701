"""What the kit uses of KerasTuner beyond its public names; `tests/ground/` pins each of them."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from typing import Any

from keras_tuner.src.distribute.utils import has_chief_oracle, is_chief_oracle
from keras_tuner.src.engine.hypermodel import HyperModel
from keras_tuner.src.engine.metrics_tracking import MetricsTracker
from keras_tuner.src.engine.objective import DefaultObjective, MultiObjective, Objective
from keras_tuner.src.engine.oracle import synchronized
from keras_tuner.src.engine.trial import Trial, TrialStatus
from keras_tuner.src.engine.tuner_utils import (
    convert_hyperparams_to_hparams,
    convert_to_metrics_dict,
    get_best_step,
    validate_trial_results,
)
from keras_tuner.src.tuners.hyperband import HyperbandOracle
from keras_tuner.src.utils import load_json


@contextlib.contextmanager
def quiet_retracing() -> Iterator[None]:
    """Keeps TensorFlow from warning that each trial's model is traced anew, as it must be."""

    def wanted(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger = logging.getLogger("tensorflow")
    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)


def trials_in_all(oracle: Any) -> int | None:
    """Returns how many trials a search will have, or `None` where only its end will tell.

    Args:
        oracle: A `keras_tuner.Oracle`.
    """
    if isinstance(oracle, HyperbandOracle) and math.isfinite(oracle.hyperband_iterations):
        sizes = [
            oracle._get_size(bracket, number)
            for bracket in range(oracle._get_num_brackets())
            for number in range(oracle._get_num_rounds(bracket))
        ]
        return int(sum(sizes) * oracle.hyperband_iterations)
    return oracle.max_trials if oracle.max_trials else None


__all__ = [
    "DefaultObjective",
    "HyperModel",
    "MetricsTracker",
    "MultiObjective",
    "Objective",
    "Trial",
    "TrialStatus",
    "convert_hyperparams_to_hparams",
    "convert_to_metrics_dict",
    "get_best_step",
    "has_chief_oracle",
    "is_chief_oracle",
    "load_json",
    "quiet_retracing",
    "synchronized",
    "trials_in_all",
    "validate_trial_results",
]
