"""An oracle whose state survives whatever happens to its process."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

from keras_tuner.engine import oracle as oracle_module
from keras_tuner.engine import trial as trial_module
from keras_tuner.src.engine.oracle import LOCKS, THREADS

from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.tuner.project import files
from keras_tpu_kit.tuner.project.algorithms import algorithm_part
from keras_tpu_kit.tuner.project.identity import changed_search_finding, identity_of
from keras_tpu_kit.tuner.project.interruption import Interruption
from keras_tpu_kit.tuner.project.layout import JOURNAL_FILE, KIT_KEY, ORACLE_FILE, TRIAL_FILE
from keras_tpu_kit.tuner.project.recovery import recover

# Deaths of its process after which a trial is failed.
MAX_CRASHES = 3


def durable(oracle: oracle_module.Oracle) -> DurableOracle:
    """Makes an oracle's state durable, and returns the same oracle.

    Its class becomes a subclass of the one it had, so an oracle of the user's own keeps its
    algorithm, and KerasTuner's calls between its methods reach the durable ones.

    Args:
        oracle: Any KerasTuner oracle; the project's directory need not be known yet.
    """
    if not isinstance(oracle, DurableOracle):
        original: Any = type(oracle)
        oracle.__class__ = _durable_class(original)
        oracle._begin_durable(original.__name__)
    made: DurableOracle = oracle
    return made


class DurableOracle(oracle_module.Oracle):  # type: ignore[misc]
    """What `durable` adds to an oracle: whole files, recovery, crash counts, one thread at a time.

    A trial exists once `oracle.json` names it, and has ended once its `trial.json` says so; a
    process may die between any two writes and `reload` still finds each trial once.
    """

    ongoing_trials: dict[str, trial_module.Trial]

    def _begin_durable(self, name: str) -> None:
        self.name = name
        self._guard = threading.RLock()
        self._crashes: dict[str, int] = {}
        self._identity: dict[str, Any] | None = None
        self._given_settings = {
            setting: getattr(self, setting)
            for setting in ("max_trials", "hyperband_iterations")
            if hasattr(self, setting)
        }
        self.interruption = Interruption()
        self._display.verbose = 0

    # --- Files ---------------------------------------------------------------------------------

    @property
    def project_path(self) -> pathlib.Path:
        """The project's directory, which may not exist yet."""
        return pathlib.Path(str(self._directory), self._project_name)

    def trial_path(self, trial_id: str) -> pathlib.Path:
        """The directory of a trial, which may not exist yet."""
        return self.project_path / f"trial_{trial_id}"

    def save(self) -> None:
        """Writes `oracle.json`, whole or not at all."""
        with self.alone():
            files.make_directory(self.project_path)
            files.write_json(self.project_path / ORACLE_FILE, self.get_state())

    def reload(self) -> list[Finding]:
        """Reads the project, mends what is damaged and returns what was mended or lost."""
        with self.alone():
            findings = recover(self)
            self.after_recovery()
            return findings

    def get_state(self) -> dict[str, Any]:
        """Returns the oracle's state with the kit's own, which KerasTuner leaves alone."""
        state: dict[str, Any] = super().get_state()
        begun = set(self._retry_queue) | {t.trial_id for t in self.ongoing_trials.values()}
        state[KIT_KEY] = {
            "crashes": dict(self._crashes),
            "identity": self._identity,
            # A trial that runs has no second file that knows its values.
            "running": {name: self.trials[name].hyperparameters.values for name in sorted(begun)},
        }
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes a saved state; what says how far to search stays as it was given now."""
        super().set_state(state)
        own = state.get(KIT_KEY, {})
        self._crashes = dict(own.get("crashes", {}))
        self._identity = own.get("identity")
        for setting, value in self._given_settings.items():
            setattr(self, setting, value)

    def _save_trial(self, trial: trial_module.Trial) -> None:
        directory = self.trial_path(trial.trial_id)
        files.make_directory(directory)
        # Enough to go on from should oracle.json be lost.
        state = {**trial.get_state(), KIT_KEY: {"seed": self.seed, "seed_state": self._seed_state}}
        files.write_json(directory / TRIAL_FILE, state)

    # --- Trials --------------------------------------------------------------------------------

    def create_trial(self, tuner_id: str) -> trial_module.Trial:
        """Returns the next trial, which is on the disk before anybody runs it."""
        with self.alone():
            return super().create_trial(tuner_id)

    def update_trial(
        self, trial_id: str, metrics: dict[str, float], step: int = 0
    ) -> trial_module.Trial:
        """Records metrics of a trial."""
        with self.alone():
            return super().update_trial(trial_id, metrics, step=step)

    def end_trial(self, trial: trial_module.Trial) -> None:
        """Records how a trial ended, once: a worker that repeats its report changes nothing."""
        with self.alone():
            if self.has_ended(trial.trial_id):
                return
            super().end_trial(trial)
            self._crashes.pop(trial.trial_id, None)
            if self.has_ended(trial.trial_id):
                self.note_in_journal(self.trials[trial.trial_id])

    def has_ended(self, trial_id: str) -> bool:
        """Whether a trial is over, well or not."""
        return trial_id in self.end_order

    def note_in_journal(self, trial: trial_module.Trial) -> None:
        """Notes what an ended trial came to in a file of its own, the last one to be lost."""
        line = {
            "trial_id": trial.trial_id,
            "values": trial.hyperparameters.values,
            "status": trial.status,
            "score": trial.score,
            "best_step": trial.best_step,
            "message": trial.message,
        }
        files.append_line(self.project_path / JOURNAL_FILE, line)

    def _complete_journal(self) -> None:
        """Notes the trials whose process died between their last file and the journal."""
        noted = {line["trial_id"] for line in files.read_lines(self.project_path / JOURNAL_FILE)}
        for trial_id in self.end_order:
            if trial_id not in noted:
                self.note_in_journal(self.trials[trial_id])

    def _complete_trial_files(self) -> None:
        """Writes what was put together from elsewhere, so that the next reader finds it whole."""
        for trial_id, trial in self.trials.items():
            reading = files.read_json(self.trial_path(trial_id) / TRIAL_FILE)
            if reading.value is None or reading.damage is not None:
                self._save_trial(trial)

    def give_back(self, trial_id: str, *, crashed: bool) -> None:
        """Puts a trial whose process is gone back into the queue, or ends it as failed.

        Args:
            trial_id: A trial that was running.
            crashed: Whether the process died in it; after three such deaths the trial is failed,
                so that a trial that kills its process does not do so for ever.
        """
        with self.alone():
            self.ongoing_trials = {
                tuner_id: trial
                for tuner_id, trial in self.ongoing_trials.items()
                if trial.trial_id != trial_id
            }
            if self.has_ended(trial_id):
                return
            trial = self.trials[trial_id]
            if crashed:
                self._crashes[trial_id] = self._crashes.get(trial_id, 0) + 1
            if self._crashes.get(trial_id, 0) >= MAX_CRASHES:
                self._fail(trial, f"Its process died {MAX_CRASHES} times while it ran.")
            elif trial_id not in self._retry_queue:
                self._retry_queue.append(trial_id)
            self.save()

    def _fail(self, trial: trial_module.Trial, reason: str) -> None:
        trial.status = trial_module.TrialStatus.FAILED
        trial.message = reason
        if trial.trial_id in self._retry_queue:
            self._retry_queue.remove(trial.trial_id)
        self._run_times[trial.trial_id] += 1
        self.end_order.append(trial.trial_id)
        self._save_trial(trial)
        self.after_failed_trial(trial)
        self.note_in_journal(trial)

    # --- Resuming ------------------------------------------------------------------------------

    def begin(self, *, crashed: bool = True, keep_ongoing: bool = False) -> list[Finding]:
        """Takes over what an earlier search left, as this process is about to go on with it.

        Args:
            crashed: Whether the trials that were running died with their process, unless that
                said that it was stopped.
            keep_ongoing: Whether those trials still run elsewhere, in workers that outlived their
                chief.

        Returns:
            What was mended or lost.

        Raises:
            SearchError: `search-changed`.
        """
        with self.alone():
            fresh = identity_of(self, self.name)
            findings = self.reload()
            if self._identity is not None:
                changed = changed_search_finding(self._identity, fresh, str(self.project_path))
                if changed is not None:
                    raise SearchError(changed)
            self._identity = self._identity or fresh
            stopped = self.interruption.was_stopped(self.project_path)
            if not keep_ongoing:
                for trial in list(self.ongoing_trials.values()):
                    self.give_back(trial.trial_id, crashed=crashed and not stopped)
            self.save()
            self._complete_trial_files()
            self._complete_journal()
            self.interruption.forget(self.project_path)
            return findings

    # --- What the algorithms add ---------------------------------------------------------------

    def after_recovery(self) -> None:
        """Is called when the trials and the state were read; rebuilds what is in no file."""

    def after_failed_trial(self, trial: trial_module.Trial) -> None:
        """Is called when a trial was failed without `end_trial`."""

    def rebuild_algorithm(self) -> None:
        """Is called when `oracle.json` is lost; rebuilds the algorithm's part from the trials."""

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps other threads and signals out until the state is whole again."""
        with self.interruption.postponed(), self._guard:
            try:
                yield
            except BaseException:
                # KerasTuner keeps its own lock when a method raises, and the next thread would
                # wait for ever; the guard says that nobody else can hold it.
                if THREADS[self] == threading.current_thread().name:
                    THREADS[self] = None
                    LOCKS[self].release()
                raise


@functools.cache
def _durable_class(original: type[oracle_module.Oracle]) -> type[DurableOracle]:
    parts = (*algorithm_part(original), DurableOracle, original)
    return type(f"Durable{original.__name__}", parts, {"__module__": __name__})
