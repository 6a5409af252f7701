"""What each of KerasTuner's algorithms keeps in no file, rebuilt from the trials."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import threadpoolctl
from keras_tuner import oracles
from keras_tuner.engine import trial as trial_module
from keras_tuner.src.tuners.gridsearch import LinkedList
from sklearn.exceptions import ConvergenceWarning

from keras_tpu_kit.tuner.project.ahead import AHEAD_FROM, ProposalsAhead


def algorithm_part(original: type[Any]) -> tuple[type[Any], ...]:
    """Returns the classes that make an oracle class's own state durable, if it has any."""
    parts = (
        (oracles.GridSearchOracle, DurableGrid),
        (oracles.HyperbandOracle, DurableHyperband),
        (oracles.BayesianOptimizationOracle, DurableBayesian),
    )
    return tuple(part for oracle, part in parts if issubclass(original, oracle))


class DurableGrid:
    """Restores the grid's order, which KerasTuner keeps in memory only (keras-tuner#1055)."""

    def populate_space(self: Any, trial_id: str) -> dict[str, Any]:
        """Returns the next combination; the one after it is ready for another worker at once.

        KerasTuner goes on from a combination when its trial has ended, so that of several workers
        one trains and the others wait. A hyperparameter that a trial adds to the space is found
        all the same: each trial is asked again when it ends.
        """
        self._complete_running()
        response: dict[str, Any] = super().populate_space(trial_id)  # type: ignore[misc]
        if response["status"] == trial_module.TrialStatus.RUNNING:
            self._populate_next.append(trial_id)
        return response

    def _complete_running(self: Any) -> None:
        """Gives running trials the defaults of hyperparameters that others have found meanwhile.

        They would register the same; KerasTuner compares combinations by all of them.
        """
        for trial in self.ongoing_trials.values():
            hp = trial.hyperparameters
            for found in self.get_space().space:
                if found.name not in hp.values and hp.is_active(found):
                    hp.values[found.name] = found.default

    def after_recovery(self: Any) -> None:
        """Puts the trials in the grid's order, and asks each again for its next combination."""
        self._complete_running()
        self._ordered_ids = LinkedList()
        by_values = functools.cmp_to_key(
            lambda one, other: self._compare(
                self.trials[one].hyperparameters.values, self.trials[other].hyperparameters.values
            )
        )
        known = [each for each in self.start_order if self.trials[each].hyperparameters.values]
        for trial_id in sorted(known, key=by_values):
            self._ordered_ids.insert(trial_id)
        self._populate_next = list(known)

    def after_failed_trial(self: Any, trial: trial_module.Trial) -> None:
        """Lets the grid go on after a trial that nobody ended."""
        self._populate_next.append(trial.trial_id)


class DurableHyperband:
    """Rebuilds the brackets, should `oracle.json` be lost."""

    def rebuild_algorithm(self: Any) -> None:
        """Puts each trial into the first bracket that has room for it, in order of creation."""
        self._brackets: list[dict[str, Any]] = []
        self._current_iteration = 0
        self._current_bracket = self._get_num_brackets() - 1
        self._start_new_bracket()
        for trial_id, trial in self.trials.items():
            values = trial.hyperparameters.values
            if "tuner/round" not in values:
                continue
            self._place(trial_id, values["tuner/round"], values)

    def _place(self: Any, trial_id: str, round_num: int, values: dict[str, Any]) -> None:
        entry = {"past_id": values.get("tuner/trial_id"), "id": trial_id}
        while True:
            for bracket in self._brackets:
                number, rounds = bracket["bracket_num"], bracket["rounds"]
                if (
                    round_num < len(rounds)
                    and self._get_epochs(number, round_num) == values["tuner/epochs"]
                    and len(rounds[round_num]) < self._get_size(number, round_num)
                ):
                    rounds[round_num].append(entry)
                    return
            if self._current_iteration > len(self.trials):
                return
            self._increment_bracket_num()
            self._start_new_bracket()


class DurableBayesian:
    """Makes each proposal depend on the seed and the finished trials alone, not on the process."""

    _ahead: ProposalsAhead | None = None

    def propose_ahead(self) -> None:
        """Lets later proposals be computed while workers train; what a chief asks for."""
        self._ahead = ProposalsAhead(self)

    def create_trial(self: Any, tuner_id: str) -> trial_module.Trial:
        """Returns the next trial, and has the one after it computed."""
        with self.alone():
            trial = super().create_trial(tuner_id)  # type: ignore[misc]
            if trial.status == trial_module.TrialStatus.RUNNING and self._computes_ahead():
                number = len(self.trials)
                self._ahead.begin(f"{number:0{len(str(self.max_trials))}d}")
            return trial

    def populate_space(self: Any, trial_id: str) -> dict[str, Any]:
        """Returns the proposal for a trial, or that it is being computed."""
        if self._computes_ahead():
            ready: dict[str, Any] = self._ahead.answer(trial_id)
            return ready
        proposal: dict[str, Any] = self.propose(trial_id)
        return proposal

    def propose(self: Any, trial_id: str) -> dict[str, Any]:
        """Returns the proposal for a trial, the same after a restart."""
        number = int(trial_id) if trial_id.isdigit() else 0
        self._random_state = np.random.RandomState([self.seed % 2**32, number])
        # Small matrices gain nothing from threads, and the cores are the trials'.
        with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
            # That a length scale is at its bound says nothing that a user could act on.
            warnings.simplefilter("ignore", ConvergenceWarning)
            response: dict[str, Any] = super().populate_space(trial_id)  # type: ignore[misc]
        return response

    def _computes_ahead(self: Any) -> bool:
        """Whether proposals come from the Gaussian process and take long."""
        dimensions = len(self.hyperparameters.space)
        initial = self.num_initial_points or max(3 * dimensions, 3)
        completed = trial_module.TrialStatus.COMPLETED
        finished = sum(trial.status == completed for trial in self.trials.values())
        # One more than both, as the last that finished may be taken as running.
        return self._ahead is not None and finished > max(AHEAD_FROM, initial)

    def _vectorize_trials(self: Any) -> tuple[Any, Any]:
        """Returns finished and running trials as vectors, those running with a cautious score.

        KerasTuner asks its last model of the objective for that score, which a restarted process
        does not have, and lends a waiting trial the score of the one before it.
        """
        trials, running, model = self.trials, self.ongoing_trials, self.gpr
        finished = {
            name: trial
            for name, trial in trials.items()
            if trial.status == trial_module.TrialStatus.COMPLETED
        }
        try:
            self.trials, self.ongoing_trials = finished, {}
            vectors: tuple[Any, Any] = super()._vectorize_trials()  # type: ignore[misc]
            if not running:
                return vectors
            self.gpr = self._make_gpr().set_params(optimizer=None).fit(*map(np.nan_to_num, vectors))
            names = {trial.trial_id for trial in running.values()}
            self.trials = finished | {n: trials[n] for n in trials if n in names}
            self.ongoing_trials = running
            return super()._vectorize_trials()  # type: ignore[misc,no-any-return]
        finally:
            self.trials, self.ongoing_trials, self.gpr = trials, running, model
