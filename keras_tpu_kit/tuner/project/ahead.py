"""Computes the next proposal while workers train, where that takes long."""

from __future__ import annotations

import copy
import time
from concurrent import futures
from typing import Any

from keras_tuner.engine import trial as trial_module

# Finished trials from which on a proposal takes about a fifth of a second and more.
AHEAD_FROM = 100


class ProposalsAhead:
    """Has the values of the next trial ready when a worker asks for them.

    They are computed as soon as the trial before is handed out, with that one taken as running,
    whether it ends meanwhile or not: so a search that is resumed proposes the same.

    Args:
        oracle: A Bayesian oracle; its guard is held by whoever calls a method here.
    """

    def __init__(self, oracle: Any) -> None:
        self._oracle = oracle
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix="proposals")
        self._trial_id: str | None = None
        self._proposal: futures.Future[tuple[dict[str, Any], float]] | None = None

    def begin(self, trial_id: str) -> None:
        """Starts to compute the values of a trial."""
        if self._trial_id == trial_id:
            return
        self._trial_id = trial_id
        self._proposal = self._thread.submit(_propose, self._snapshot(), trial_id)

    def answer(self, trial_id: str) -> dict[str, Any]:
        """Returns the values of a trial, or that they are not ready, as `populate_space` does."""
        self.begin(trial_id)
        assert self._proposal is not None
        if not self._proposal.done():
            return {"status": trial_module.TrialStatus.IDLE, "values": None}
        values, seconds = self._proposal.result()
        if hasattr(self._oracle, "proposal_seconds"):
            self._oracle.proposal_seconds += seconds
        return values

    def _snapshot(self) -> Any:
        """Returns an oracle that another thread may read while this one goes on."""
        oracle = self._oracle
        snapshot = copy.copy(oracle)
        snapshot.gpr = oracle._make_gpr()
        snapshot.trials = {name: copy.copy(trial) for name, trial in oracle.trials.items()}
        running = {trial.trial_id for trial in oracle.ongoing_trials.values()}
        running |= set(oracle.start_order[-1:])
        snapshot.ongoing_trials = {name: snapshot.trials[name] for name in sorted(running)}
        for trial in snapshot.ongoing_trials.values():
            trial.status = trial_module.TrialStatus.RUNNING
        return snapshot


def _propose(snapshot: Any, trial_id: str) -> tuple[dict[str, Any], float]:
    """Returns a proposal and the seconds that it took."""
    began = time.perf_counter()
    return snapshot.propose(trial_id), time.perf_counter() - began
