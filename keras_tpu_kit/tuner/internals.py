"""What the kit uses of KerasTuner beyond its public names; `tests/ground/` pins each of them."""

from __future__ import annotations

import collections

from keras.src.backend.common import global_state
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
from keras_tuner.src.utils import load_json, save_json


def reset_names() -> None:
    """Lets Keras name layers and metrics as if none had been made before.

    `keras.utils.clear_session` does that as well, but forgets the user's dtype policy and
    seed, and makes TensorFlow compile its kernels again.
    """
    global_state.set_global_attribute("object_name_uids", collections.defaultdict(int))


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
    "reset_names",
    "save_json",
    "synchronized",
    "validate_trial_results",
]
