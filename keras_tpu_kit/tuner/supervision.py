"""What is added to an oracle, where it really lives: pruning, display, and nothing counted twice.

KerasTuner's protocol already carries all of it: `update_trial` takes metrics with a step and
answers with the trial, whose status `"STOPPED"` asks to end it. So a pruner sees the epochs of
all workers, and a worker needs no other connection than the one to its oracle.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

from keras_tpu_kit.tuner.internals import MetricsTracker, TrialStatus, synchronized

# Among the metrics of a report, names the epoch from which on to forget what was reported of the
# trial before: 0 for a trial that begins, more for one that goes on from an epoch it had saved.
FRESH = "keras_tpu_kit/fresh"

Judge = Callable[[Any, Any], bool]


def supervise(oracle: Any, *, judge: Judge | None, display: Any) -> None:
    """Adds to `oracle` what the kit's searches need of one.

    Args:
        oracle: A `keras_tuner.Oracle`, never a client of one.
        judge: Is asked with oracle and trial after each epoch that was reported, and returns
            whether the trial shall end; `None` ends none.
        display: Stands in for KerasTuner's own.
    """
    report = oracle.update_trial

    @synchronized  # type: ignore[untyped-decorator]
    def update_trial(
        oracle: Any, trial_id: str, metrics: Mapping[str, float], step: int = 0
    ) -> Any:
        values = dict(metrics)
        if FRESH in values:
            trial = oracle.trials[trial_id]
            trial.metrics = _before(trial.metrics, int(values.pop(FRESH)))
        trial = report(trial_id, values, step)
        display.on_epoch_end(trial, step)
        if judge is not None and judge(oracle, trial):
            trial = copy.copy(trial)
            trial.status = TrialStatus.STOPPED
        return trial

    propose = oracle.populate_space

    def populate_space(trial_id: str) -> Any:
        began = time.perf_counter()
        proposal = propose(trial_id)
        oracle.proposal_seconds += time.perf_counter() - began
        return proposal

    oracle.proposal_seconds = 0.0
    oracle.populate_space = populate_space
    oracle.update_trial = functools.partial(update_trial, oracle)
    # Raising in the middle of end_trial would leave the oracle locked and the trial unsaved; the
    # tuner counts failures itself.
    oracle._check_consecutive_failures = lambda: None
    oracle._display = display


def _before(metrics: Any, epoch: int) -> Any:
    """Returns metrics as they were before an epoch was reported."""
    kept = MetricsTracker()
    for name, history in metrics.metrics.items() if epoch else ():
        kept.register(name, history.direction)
        kept.set_history(name, [each for each in history.get_history() if each.step < epoch])
    return kept


def proposal_seconds(oracle: Any) -> float:
    """Returns the seconds that a supervised oracle's algorithm took to choose values."""
    return float(oracle.proposal_seconds)
