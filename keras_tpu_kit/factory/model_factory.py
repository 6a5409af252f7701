"""The class that users subclass: what the model is, and how it learns."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras
import keras_tuner
import tensorflow as tf

from keras_tpu_kit.checks import model as model_checks
from keras_tpu_kit.checks import steps
from keras_tpu_kit.errors import FactoryError, Finding, refuse
from keras_tpu_kit.factory import hooks
from keras_tpu_kit.factory.precision import dtype_policy
from keras_tpu_kit.factory.run import Run, fit
from keras_tpu_kit.placement import placement_findings
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import (
    replicate,
    replication_notes,
    synchronize_batch_normalization,
)
from keras_tpu_kit.stock_training import stock_training_findings
from keras_tpu_kit.strategy import describe_strategy, detect_strategy
from keras_tpu_kit.topology import Topology


class ModelFactory:
    """Builds, compiles and loads a model on all replicas of a strategy.

    Subclass it and override `build` and `compile_args`. Both are called in the strategy's
    scope with an `hp`, a `keras_tuner.HyperParameters` that answers with the defaults outside
    a search, so that one code path serves training and search.

    Args:
        strategy: A `tf.distribute` strategy; or what `detect_strategy` takes, such as
            `"auto"`, `"tpu"` or `"cpu"`, which is asked when it is first needed.
        plan: The `BatchPlan` that the model will be fed by; without one it trains on whatever
            `fit` gets, one step an execution.
        precision: `None` leaves Keras's dtype policy as it is; `"auto"` takes
            `"mixed_bfloat16"` on TPUs and `"mixed_float16"` on GPUs with tensor cores; or the
            name of a policy.
        replicated: Whether the model gets the kit's training step (`ktk.replicate`), which
            makes N replicas train as one device would; the default. Without it Keras's own
            runs, and what that gets wrong on several replicas is refused.
        synchronize_batch_norm: Whether every `BatchNormalization` normalises over the rows of
            all replicas, as on one device; not by default.

    A subclass may set the last three as class attributes; what is passed here comes first.

    Example:

    ```python
    class Classifier(ktk.ModelFactory):
        def build(self, hp):
            return keras.Sequential([
                keras.Input((784,)),
                keras.layers.Dense(hp.Int("units", 32, 512, default=128), activation="relu"),
                keras.layers.Dense(10)])

        def compile_args(self, hp):
            return {"optimizer": keras.optimizers.Adam(hp.Float("lr", 1e-4, 1e-2, default=1e-3)),
                    "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    "metrics": ["accuracy"]}

    model = Classifier(strategy, plan).create()
    ```
    """

    precision: str | None = None
    replicated: bool = True
    synchronize_batch_norm: bool = False

    def __init__(
        self,
        strategy: tf.distribute.Strategy | str = "auto",
        plan: BatchPlan | None = None,
        *,
        precision: str | None = None,
        replicated: bool | None = None,
        synchronize_batch_norm: bool | None = None,
    ) -> None:
        self._strategy = strategy
        self.plan = hooks.require_plan(plan, f"{type(self).__name__}(plan=...)")
        # What is not said here may be said in the class.
        if precision is not None:
            self.precision = precision
        if replicated is not None:
            self.replicated = replicated
        if synchronize_batch_norm is not None:
            self.synchronize_batch_norm = synchronize_batch_norm

    @classmethod
    def from_function(cls, function: Callable[..., keras.Model], *args: Any, **kwargs: Any) -> Any:
        """Returns a factory whose models come from a function that returns a compiled model.

        Args:
            function: Takes nothing, or the hyperparameters, and returns a compiled model. It
                is called in the strategy's scope and need not know of any.
            *args: As the class takes.
            **kwargs: As the class takes.

        Raises:
            FactoryError: If it is a model already, or no function.

        Example:

        >>> def get_compiled_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        ...     return model
        >>> ModelFactory.from_function(get_compiled_model, "cpu").create().output_shape
        (None, 1)
        """
        return _FunctionFactory(hooks.require_function(function), *args, **kwargs)

    # --- Hooks to override -------------------------------------------------------------------

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns a new model; override it. The model may be compiled already.

        Args:
            hp: The hyperparameters of this trial, or the defaults.
        """
        purpose = "what the model is"
        raise FactoryError(hooks.missing(f"{type(self).__name__}.build(self, hp)", purpose))

    def compile_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        """Returns the keyword arguments of `model.compile`; override it.

        It is not called where `build` returned a compiled model.

        Args:
            hp: The hyperparameters of this trial, or the defaults.
        """
        raise FactoryError(hooks.not_compiled(self._builder))

    def plan_for(self, hp: keras_tuner.HyperParameters) -> BatchPlan | None:
        """Returns the plan for these hyperparameters; override it to tune the batch.

        Args:
            hp: The hyperparameters of this trial, or the defaults.
        """
        return self.plan

    def fit_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        """Returns keyword arguments of `model.fit` that this model trains with; may be overridden.

        Such as `epochs`, `callbacks` or `class_weight`. What the plan decides is not asked for.

        Args:
            hp: The hyperparameters of this trial, or the defaults.
        """
        return {}

    def data(self) -> tuple[Any, Any]:
        """Returns `(train, validation)`, unbatched; override it for the command line.

        `validation` may be `None`. The command makes the strategy and the plan.
        """
        purpose = "what to train on when a command needs data"
        raise FactoryError(hooks.missing(f"{type(self).__name__}.data(self)", purpose))

    # --- What users call ---------------------------------------------------------------------

    @property
    def strategy(self) -> tf.distribute.Strategy:
        """The strategy on whose replicas models are made."""
        if isinstance(self._strategy, str):
            self._strategy = detect_strategy(self._strategy)
        return self._strategy

    @property
    def topology(self) -> Topology:
        """Where training runs, as a value."""
        return describe_strategy(self.strategy)

    def create(self, hp: keras_tuner.HyperParameters | None = None) -> keras.Model:
        """Returns a new compiled model whose variables live on all replicas.

        Args:
            hp: Hyperparameters, such as the best of a search; by default their defaults.

        Raises:
            FactoryError: If a hook broke its contract, or something of the model was made
                outside the scope.
            ReplicationError: If several replicas cannot train it right.
        """
        hp = keras_tuner.HyperParameters() if hp is None else hp
        plan = hooks.require_plan(self.plan_for(hp), f"{type(self).__name__}.plan_for")
        with self.strategy.scope(), dtype_policy(self.precision, self.topology):
            model = hooks.require_model(hooks.call_with_hp(self.build, hp), self._builder)
            if not model.compiled:
                self._compile(model, hp, plan)
        return self._ready(model, plan)

    def load(
        self,
        path: str | os.PathLike[str],
        custom_objects: dict[str, Any] | None = None,
        hp: keras_tuner.HyperParameters | None = None,
    ) -> keras.Model:
        """Returns a saved model with its optimizer's state on all replicas.

        Args:
            path: A `.keras` file, written by this factory's model or by stock Keras.
            custom_objects: As `keras.saving.load_model` takes it.
            hp: Hyperparameters for `compile_args` where the file holds a model that was never
                compiled, and for `plan_for`.

        Raises:
            FactoryError: If the model cannot be compiled.
            ReplicationError: If several replicas cannot train it right.
        """
        hp = keras_tuner.HyperParameters() if hp is None else hp
        plan = hooks.require_plan(self.plan_for(hp), f"{type(self).__name__}.plan_for")
        with self.strategy.scope():
            model = keras.saving.load_model(os.fspath(path), custom_objects=custom_objects)
            if not model.compiled:
                self._compile(model, hp, plan)
        return self._ready(model, plan)

    def fit(self, data: Any, **options: Any) -> Run:
        """Detects, plans, builds and trains in one call; see `keras_tpu_kit.factory.run.fit`.

        Args:
            data: What `make_dataset` takes: arrays, an unbatched or a batched dataset.
            **options: `validation_data`, one of the batch sizes that `plan_batches` takes,
                `epochs`, `callbacks`, `seed`, and whatever `model.fit` takes.
        """
        return fit(self, data, **options)

    def findings(self, model: keras.Model) -> tuple[Finding, ...]:
        """Returns what is worth knowing about how this model trains on the replicas.

        Args:
            model: A model of this factory.
        """
        return replication_notes(model) if self.replicated else stock_training_findings(model)

    @property
    def _builder(self) -> str:
        """What builds the models, as users know it."""
        return f"{type(self).__name__}.build"

    # --- What happens inside -----------------------------------------------------------------

    def _compile(
        self, model: keras.Model, hp: keras_tuner.HyperParameters, plan: BatchPlan | None
    ) -> None:
        hook = f"{type(self).__name__}.compile_args"
        args = hooks.require_compile_args(hooks.call_with_hp(self.compile_args, hp), hook)
        if self._is_compiled_by_strategy:
            args.setdefault("jit_compile", False)
        model.compile(**args)

    @property
    def _is_compiled_by_strategy(self) -> bool:
        """Whether Keras must leave XLA to the strategy: several replicas, or a TPU."""
        return self.topology.is_replicated or self.topology.accelerator == "tpu"

    def _ready(self, model: keras.Model, plan: BatchPlan | None) -> keras.Model:
        """Returns a compiled model that is checked and will train right, or raises."""
        if self.synchronize_batch_norm:
            synchronize_batch_normalization(model)
        if self._is_compiled_by_strategy and model.jit_compile == "auto":
            model.jit_compile = False
        replicas = self.topology.num_replicas
        refuse(FactoryError, model_checks.check_jit_compile(model.jit_compile, replicas))
        for finding in placement_findings(model, self.strategy):
            raise FactoryError(finding)
        can_fuse = self.replicated or not self.topology.is_replicated
        if plan is not None:
            if model.steps_per_execution == 1 and can_fuse:
                model.steps_per_execution = plan.steps_per_execution
            refuse(
                FactoryError,
                steps.check_steps_per_execution(plan.steps_per_epoch, model.steps_per_execution),
            )
        if self.replicated:
            return replicate(model, plan)
        for finding in stock_training_findings(model):
            refuse(FactoryError, finding if finding.severity == "error" else None)
        return model


class _FunctionFactory(ModelFactory):
    """Makes models with a function that knows nothing of factories."""

    def __init__(self, function: Callable[..., keras.Model], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._function = function

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        model = hooks.call_with_or_without_hp(self._function, hp)
        return hooks.require_model(model, self._builder)

    def compile_args(self, hp: keras_tuner.HyperParameters) -> dict[str, Any]:
        raise FactoryError(hooks.not_compiled(self._builder, is_factory=False))

    @property
    def _builder(self) -> str:
        return str(getattr(self._function, "__name__", repr(self._function)))
