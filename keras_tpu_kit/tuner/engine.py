"""The life of a search: each trial built, trained and answered for inside the strategy."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import keras_tuner
import tensorflow as tf

from keras_tpu_kit.checks import search as rules
from keras_tpu_kit.errors import PlanError, SearchError, refuse
from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.plan import require_count
from keras_tpu_kit.searching import ServiceSettings
from keras_tpu_kit.tuner.adaptation import FactoryHyperModel, HyperModelFactory, as_factory
from keras_tpu_kit.tuner.answers import SearchAnswers
from keras_tpu_kit.tuner.display import Display
from keras_tpu_kit.tuner.feeding import Feeding
from keras_tpu_kit.tuner.internals import TrialStatus, is_chief_oracle, quiet_retracing
from keras_tpu_kit.tuner.models import TrialModels
from keras_tpu_kit.tuner.project import Project
from keras_tpu_kit.tuner.project.files import write_json
from keras_tpu_kit.tuner.pruning import Pruner, judge
from keras_tpu_kit.tuner.record import TrialRecord, reason_of
from keras_tpu_kit.tuner.service import ChiefServer, connect
from keras_tpu_kit.tuner.supervision import supervise
from keras_tpu_kit.tuner.trial_run import TrialEnded, TrialRun

_log = logging.getLogger("keras_tpu_kit")

GOES_ON = "Every finished trial is kept, and the same call goes on from there."

# Seconds between questions to an oracle that has nothing to hand out yet.
_IDLE_SECONDS = 0.1


class SearchEngine(SearchAnswers, TrialModels):
    """Runs the trials of any oracle; behind a KerasTuner class in the bases it gets its oracle.

    `class RandomSearch(keras_tuner.RandomSearch, SearchEngine)` keeps KerasTuner's own
    constructor, which makes the oracle and hands it on to this one.

    Each moment of a search's life has its method: `on_search_begin`, `on_trial_begin`,
    `on_trial_end` and `on_search_end` are KerasTuner's, called where it calls them;
    `on_epoch_reported` follows each epoch's report to the oracle; `serve` is what a chief does
    in place of trials. `project` is told of all of them.
    """

    def __init__(
        self,
        oracle: keras_tuner.Oracle,
        hypermodel: Any = None,
        *,
        strategy: tf.distribute.Strategy | str = "auto",
        pruner: Pruner | None = None,
        log: str = "auto",
        directory: Any = None,
        project_name: str | None = None,
        overwrite: bool = False,
        distribution_strategy: tf.distribute.Strategy | None = None,
        **kwargs: Any,
    ) -> None:
        refuse(SearchError, rules.check_open_scope(tf.distribute.has_strategy()))
        refuse(SearchError, rules.check_pruner(type(oracle).__name__, pruner))
        if getattr(oracle, "max_trials", None) is not None:
            require_count("max_trials", oracle.max_trials, 1)
        refuse(
            SearchError,
            rules.check_compile_args(
                isinstance(hypermodel, ModelFactory),
                {name: kwargs.get(name) for name in ("optimizer", "loss", "metrics")},
            ),
        )
        self.factory = as_factory(
            hypermodel,
            strategy if distribution_strategy is None else distribution_strategy,
            self._override_compile_args,
            needs_model=type(self).run_trial is SearchEngine.run_trial,
        )
        # Whether the factory's plan decides the batch, which its hooks may ask for.
        self._factory_plans = hypermodel is not None and not isinstance(
            self.factory, HyperModelFactory
        )
        self.project = Project(directory, project_name, oracle, overwrite=overwrite)
        self.project.prepare()
        self.pruner = pruner
        self.display = Display(oracle, log)
        judges = None if pruner is None else functools.partial(judge, pruner)
        supervise(oracle, judge=judges, display=self.display)
        self._run: TrialRun | None = None
        self.feeding: Feeding | None = None
        # Batch on a replica and weights of each trial that ran out of memory in this process.
        self.exhausted: list[tuple[int, int]] = []
        self._failed_in_a_row = 0
        if self.project.is_worker:
            self.display.log = "quiet"
        self._space: keras_tuner.HyperParameters | None = None
        # KerasTuner explores the space before it sets these.
        self.distribution_strategy = None
        self.optimizer, self.loss, self.metrics = map(kwargs.get, ("optimizer", "loss", "metrics"))
        super().__init__(
            oracle=oracle,
            hypermodel=hypermodel and FactoryHyperModel(self.factory, hypermodel),
            directory=self.project.directory,
            project_name=self.project.project_name,
            **kwargs,
        )
        # A worker asks its chief, with the kit's client in place of KerasTuner's.
        self.oracle = connect(oracle, self.project.is_over) or oracle

    # --- A search --------------------------------------------------------------------------

    def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Runs trials until the oracle has no more of them.

        Args:
            *fit_args: As `keras.Model.fit` takes them; data is best given unbatched, as arrays
                or as a dataset of rows: each trial's plan batches it. `(x, y)` may be one
                tuple. Without data, the factory's `data()` is asked.
            **fit_kwargs: As `keras.Model.fit` takes them, and for a `ModelFactory` one of the
                sizes that `plan_batches` takes.

        Raises:
            KitError: If a hook, a plan or the data is wrong; the first trial shows it.
            SearchError: If the search cannot go on, or no trial finished.
        """
        refuse(SearchError, rules.check_open_scope(tf.distribute.has_strategy()))
        if fit_kwargs.get("epochs") is not None:
            require_count("epochs", fit_kwargs["epochs"], 1)
        self.display.verbose = fit_kwargs.get("verbose", 1)
        seed = self.project.oracle.seed
        self.feeding = Feeding(self.factory, decides_batch=self._factory_plans, seed=seed)
        if not self.returns_objective:  # What the user's own code takes is not known.
            refuse(SearchError, self.feeding.check_arguments(fit_kwargs))
        args, kwargs = self.feeding.open(fit_args, fit_kwargs)
        oracle = self.project.oracle
        try:
            with self.project.searching(self):
                self.keep_plan()
                self._explore()
                self.project.on_space_known()
                before = len(oracle.end_order)
                with self.display.shown(kwargs.get("epochs", 1)):
                    if is_chief_oracle():
                        self.serve()
                        self.on_search_end()
                    else:
                        self._run_trials(args, kwargs)
        except KeyboardInterrupt:
            if not self.display.is_quiet:
                _log.warning("The search stops. %s", GOES_ON)
            raise
        if not self.project.is_worker and before == len(oracle.end_order):
            self.display.tell(rules.nothing_was_left(before))

    def _run_trials(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.on_search_begin()
        with cheap_collections(), quiet_retracing():
            while (trial := self._next_trial()) is not None:
                self.on_trial_begin(trial)
                self._try_run_and_update_trial(trial, *args, **kwargs)
                self.on_trial_end(trial)
        self.on_search_end()

    def serve(self) -> None:
        """Hands out trials to workers until the search is over: what a chief does."""
        settings = ServiceSettings.from_environment(os.environ)
        assert settings is not None
        with ChiefServer(self.project.oracle, settings) as server:
            server.serve()

    def save(self) -> None:
        """Marks the project as one that can be reloaded; its oracle has saved itself."""
        if not self._is_worker():
            self.project.save_tuner_file(self.tuner_id)

    def _next_trial(self) -> Any:
        """Returns a trial to run, or `None` when the search is over."""
        while True:
            self.pre_create_trial()
            trial = self.oracle.create_trial(self.tuner_id)
            if trial.status == TrialStatus.STOPPED:
                return None
            if trial.status != TrialStatus.IDLE:
                return trial
            time.sleep(_IDLE_SECONDS)

    def on_search_begin(self) -> None:
        """Is called before the first trial."""
        super().on_search_begin()
        self.project.on_search_begin(self)

    def on_trial_begin(self, trial: Any) -> None:
        """Is called before a trial is built."""
        super().on_trial_begin(trial)
        self.project.on_trial_begin(trial)

    def on_epoch_reported(self, trial: Any, epoch: int) -> None:
        """Is called after an epoch of a trial was reported to the oracle."""
        self.project.on_epoch_end(trial, epoch)

    def on_trial_end(self, trial: Any) -> None:
        """Tells the oracle how a trial ended, and stops after too many failures in a row."""
        self._run = None
        super().on_trial_end(trial)
        self.project.on_trial_end(trial)
        record = TrialRecord.from_message(trial.message)
        if record is None:
            return
        self._failed_in_a_row = self._failed_in_a_row + 1 if record.outcome == "failed" else 0
        limit = getattr(self.project.oracle, "max_consecutive_failed_trials", None)
        refuse(SearchError, rules.check_failures(self._failed_in_a_row, limit, record.reason))

    def on_search_end(self) -> None:
        """Is called after the last trial.

        Raises:
            SearchError: If no trial finished.
        """
        super().on_search_end()
        self.project.on_search_end()
        oracle = self.project.oracle
        if oracle is self.oracle:
            trials = list(oracle.trials.values())
            finished = sum(trial.status == TrialStatus.COMPLETED for trial in trials)
            refuse(
                SearchError,
                rules.check_any_finished(finished, [reason_of(trial) for trial in trials]),
            )

    # --- The space -------------------------------------------------------------------------

    @property
    def returns_objective(self) -> bool:
        """Whether user code returns the objective, so that epochs need not log it."""
        overridden = type(self).run_trial is not SearchEngine.run_trial
        return overridden or self.hypermodel is None or self.hypermodel.says_objective

    def _populate_initial_space(self) -> None:
        """Explores the space, unless hooks may ask for a plan that only data will tell."""
        if not self._factory_plans or self.factory.plan is not None:
            self._explore()

    def _explore(self) -> None:
        """Tells the oracle of the space, which is explored once in a process."""
        if self._space is None:
            super()._populate_initial_space()
            self._space = self.oracle.get_space()
        self.oracle.update_space(self._space)

    # --- A trial ---------------------------------------------------------------------------

    def _try_run_and_update_trial(self, trial: Any, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Runs a trial, and records how it ended where that says something of its values only.

        Everything else, a `KitError` or a mistake in the user's code, stops the search.
        """
        replicas = self.factory.topology.num_replicas
        record = TrialRecord(num_replicas=replicas, began=time.time())
        self._run = run = TrialRun(self, trial, record)
        begun = time.perf_counter()
        try:
            run.report_results(self.run_trial(trial, *fit_args, **fit_kwargs))
            record.outcome, record.reason = run.ending
        except TrialEnded as ended:
            record.outcome, record.reason = ended.outcome, ended.reason
        except keras_tuner.errors.FailedTrialError as failed:
            record.outcome, record.reason = "failed", str(failed)
        except tf.errors.ResourceExhaustedError as exhausted:
            record.outcome, record.reason = "out of memory", str(exhausted).splitlines()[0]
            if record.per_replica_batch_size and record.num_weights:
                self.exhausted.append((record.per_replica_batch_size, record.num_weights))
            # What did not fit is in cycles, and the next trial needs its room.
            run.model = None
            exhausted.__traceback__ = None
            gc.collect()
        record.seconds = time.perf_counter() - begun
        trial.status, trial.message = record.status, record.to_message()

    def run_trial(self, trial: Any, *fit_args: Any, **fit_kwargs: Any) -> Any:
        """Builds and trains `executions_per_trial` models, and returns what training returned."""
        epochs = trial.hyperparameters.values.get("tuner/epochs")
        if epochs is not None:
            # Hyperband's own; set here so that a StrategyTuner keeps them as well.
            fit_kwargs["epochs"] = epochs
            fit_kwargs["initial_epoch"] = trial.hyperparameters.values["tuner/initial_epoch"]
        assert self._run is not None
        return self._run.executions(fit_args, fit_kwargs)

    def _build_and_fit_model(self, trial: Any, *args: Any, **kwargs: Any) -> Any:
        """Builds a model in the strategy's scope and trains it there."""
        run, hp = self._run, trial.hyperparameters
        assert run is not None and self.feeding is not None
        try:
            run.model = model = self._try_build(hp)
        except PlanError as error:
            raise TrialEnded("infeasible", error.finding.what) from None
        # Shapes that only data told; a promoted trial has its own from the trial before it.
        needs_shapes = not model.built or "tuner/trial_id" in hp.values
        self.feeding.feed(model, hp, run.before_fit)
        # What a hypermodel's own fit makes has to live where its model does.
        with self.factory.strategy.scope():
            history = self.hypermodel.fit(hp, model, *args, **kwargs)
        if needs_shapes:
            write_json(self._get_build_config_fname(trial.trial_id), model.get_build_config())
        return history


@contextlib.contextmanager
def cheap_collections() -> Iterator[None]:
    """Sets what exists now apart from garbage collection, which each trial would pay for.

    A collection goes through all that TensorFlow and Keras made on import, and takes a third of
    a second; a trial's own objects take a few hundredths.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
