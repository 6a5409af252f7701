"""One trial: its executions, what each epoch reports, and why it may end early."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from keras_tpu_kit.checks import search as rules
from keras_tpu_kit.errors import SearchError, refuse
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import preparation
from keras_tpu_kit.tuner.backup import EpochBackup
from keras_tpu_kit.tuner.epochs import EpochReporter, logged_names, objective_names
from keras_tpu_kit.tuner.internals import (
    DefaultObjective,
    convert_to_metrics_dict,
    get_best_step,
    validate_trial_results,
)
from keras_tpu_kit.tuner.record import Outcome, TrialRecord
from keras_tpu_kit.tuner.supervision import FRESH
from keras_tpu_kit.tuner.weights import BestWeights

if TYPE_CHECKING:
    from keras_tpu_kit.tuner.engine import SearchEngine


class TrialEnded(Exception):  # noqa: N818 -- no error: the search goes on
    """A trial ended without a value to learn from, for a reason that lies in its values."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(outcome, reason)
        self.outcome = outcome
        self.reason = reason


class TrialRun:
    """Runs one trial of a search.

    Args:
        engine: The tuner.
        trial: The trial.
        record: Is filled in as the trial goes on.
    """

    def __init__(self, engine: SearchEngine, trial: Any, record: TrialRecord) -> None:
        self.engine = engine
        self.trial = trial
        self.record = record
        self.objective = engine.oracle.objective
        self.model: keras.Model | None = None
        self.ending: tuple[Outcome, str] = ("finished", "")
        self.weights = BestWeights(self.objective)
        self.epochs_reported = 0
        # Otherwise the user's own code returns it, under whatever name.
        self.is_logged = not (
            isinstance(self.objective, DefaultObjective) or engine.returns_objective
        )
        self._is_known = False

    def executions(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Builds and trains the trial's models, and returns what each training returned."""
        engine = self.engine
        given = keras.tree.flatten(kwargs.pop("callbacks", None) or [])
        results = []
        for execution in range(engine.executions_per_trial):
            callbacks = engine._deepcopy_callbacks(given)
            engine._configure_tensorboard_dir(callbacks, self.trial, execution)
            callbacks.append(EpochReporter(self, execution))
            if engine.executions_per_trial == 1:
                project = engine.project
                path = project.backup_path(self.trial)
                callbacks.append(EpochBackup(self, path, project.backup_seconds))
            engine.seed_execution(self.trial, execution)
            results.append(
                engine._build_and_fit_model(self.trial, *args, **{**kwargs, "callbacks": callbacks})
            )
            if self.ending[0] != "finished":
                break
        if self.ending[0] in ("finished", "pruned") and self.model is not None:
            self.write_weights(self.model)
        return results

    def before_fit(
        self,
        model: keras.Model,
        plan: BatchPlan | None,
        train: tf.data.Dataset | None,
        callbacks: list[keras.callbacks.Callback],
        has_validation: bool,
    ) -> None:
        """Refuses what is known to fail before the first step.

        Raises:
            SearchError: If the objective is not among what training will log.
            TrialEnded: If less than this ran out of memory before.
        """
        self.model = model
        record = self.record
        if train is not None:
            preparation.build(model, train.element_spec)
            known = logged_names(model, callbacks, has_validation)
            if known is not None and self.is_logged:
                names = objective_names(self.objective)
                finding = rules.check_objective(names, known, has_validation)
                refuse(SearchError, finding)
        record.num_weights = model.count_params() if model.built else None
        if plan is not None and record.num_weights is not None:
            record.per_replica_batch_size = plan.per_replica_batch_size
            finding = rules.check_memory(
                plan.per_replica_batch_size, record.num_weights, self.engine.exhausted
            )
            if finding is not None:
                raise TrialEnded("infeasible", finding.why)

    def resume(
        self, model: keras.Model, epochs: int, best: float | None, values: list[Any] | None
    ) -> None:
        """Goes on where an earlier process of this trial was broken off.

        Args:
            model: The model after the last epoch that was saved.
            epochs: How many epochs it has trained.
            best: The objective of its best epoch.
            values: The variables of that epoch, or `None` if they are the model's own.
        """
        self.weights.resume(model, best, values)
        self.epochs_reported = epochs
        first = self.trial.hyperparameters.values.get("tuner/initial_epoch", 0)
        self.record.epochs = self.record.planned_epochs = epochs - first

    def end(self, outcome: Outcome, reason: str) -> None:
        """Lets training end after the current execution, and keeps the first reason."""
        if self.ending[0] == "finished":
            self.ending = (outcome, reason)
        if self.model is not None:
            self.model.stop_training = True

    def report_epoch(self, epoch: int, metrics: dict[str, float]) -> bool:
        """Tells the oracle of an epoch, and returns whether the trial shall go on."""
        fresh = {} if self._is_known else {FRESH: float(self.epochs_reported)}
        self._is_known = True
        answer = self.engine.oracle.update_trial(
            self.trial.trial_id, {**metrics, **fresh}, step=epoch
        )
        self.epochs_reported += 1
        self.engine.on_epoch_reported(self.trial, epoch)
        return bool(answer.status != "STOPPED")

    def report_results(self, results: Any) -> None:
        """Tells the oracle what the trial came to, where its epochs have not said it all.

        Raises:
            TrialEnded: If the trial diverged.
            SearchError: If there is no value of the objective.
        """
        if self.ending[0] == "diverged":
            raise TrialEnded(*self.ending)
        only = results[0] if isinstance(results, list) and len(results) == 1 else None
        is_told = self.epochs_reported and isinstance(only, keras.callbacks.History)
        if is_told or self.ending[0] == "pruned":
            return
        validate_trial_results(results, self.objective, "Tuner.run_trial()")
        try:
            metrics = convert_to_metrics_dict(results, self.objective)
            step = get_best_step(results, self.objective)
        except KeyError:
            finding = rules.objective_not_measured(self.objective.name, self.record.epochs)
            raise SearchError(finding) from None
        value = metrics[self.objective.name]
        if not rules.is_hopeful(value):
            if self.objective.name in rules.THROUGHPUT_OBJECTIVES:
                raise SearchError(
                    rules.objective_not_measured(self.objective.name, self.record.epochs)
                )
            raise TrialEnded("diverged", f"{self.objective.name} was {value}.")
        self.engine.oracle.update_trial(
            self.trial.trial_id, {**_numbers(metrics), FRESH: 0.0}, step=step
        )

    def write_weights(self, model: keras.Model) -> None:
        """Keeps the best weights, for `get_best_models` and for trials that go on from them."""
        self.weights.write(model, self.engine._get_checkpoint_fname(self.trial.trial_id))


def _numbers(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
