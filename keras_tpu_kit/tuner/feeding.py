"""Feeds each trial: data that was given once is batched by the trial's own plan, and kept."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import keras
import keras_tuner
import tensorflow as tf

from keras_tpu_kit.callbacks import ThroughputMonitor, callbacks_for, plan_callbacks
from keras_tpu_kit.checks.data import check_validation_split
from keras_tpu_kit.checks.search import check_search_arguments
from keras_tpu_kit.datasets import inspect_data, make_dataset, plan_for_data
from keras_tpu_kit.errors import DataError, Finding, PlanError, refuse
from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.plan import BatchPlan, require_count

# Keras's own batch, over all replicas, where a model-building function says none.
KERAS_BATCH = 32

_SIZES = (
    "global_batch_size",
    "per_replica_batch_size",
    "target_batch_size",
    "steps_per_epoch",
    "num_samples",
)
_FIT = inspect.signature(keras.Model.fit)
# With these the caller cuts the data, and the kit takes what comes.
_CUTS = ("steps_per_epoch", "validation_steps", "validation_batch_size")

# Is called before the first step with the model, its plan and dataset where the kit made them,
# the callbacks and whether the model will be validated.
BeforeFit = Callable[
    [keras.Model, BatchPlan | None, tf.data.Dataset | None, list[keras.callbacks.Callback], bool],
    None,
]


class Feeding:
    """Stands between a search's data and the `fit` of each trial's model.

    Args:
        factory: Makes the models; gets the plan that the data suggests, where it has none.
        decides_batch: Whether the factory's plan decides the batch; otherwise `batch_size` does,
            as in Keras.
        seed: Makes the order of the rows reproducible.
    """

    def __init__(self, factory: ModelFactory, *, decides_batch: bool, seed: int) -> None:
        self._factory = factory
        self._decides_batch = decides_batch
        self._seed = seed
        # Each value keeps its key's data alive, so that an id stays one object's.
        self._datasets: dict[tuple[Any, ...], tuple[Any, tf.data.Dataset]] = {}
        self._splits: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}

    def check_arguments(self, kwargs: dict[str, Any]) -> Finding | None:
        """Returns a finding where `search` was given what no trial's `fit` takes.

        Args:
            kwargs: As passed to `search`.
        """
        known = [name for name in _FIT.parameters if name != "self"]
        return check_search_arguments(kwargs, known, _SIZES, self._decides_batch)

    def open(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments for each trial's `fit`, after planning the search's data.

        Args:
            args: As passed to `search`.
            kwargs: As passed to `search`.

        Raises:
            PlanError: If the numbers cannot work, or the plan is said twice.
            DataError: If the data cannot be fed to one trial after another.
        """
        if not self._decides_batch:
            return args, kwargs
        sizes = {name: kwargs[name] for name in _SIZES if kwargs.get(name) is not None}
        call = _bound(args, {name: kwargs[name] for name in kwargs if name not in _SIZES})
        if call.get("x") is None:
            call["x"], validation = self._factory.data()
            call.setdefault("validation_data", validation)
        data, validation = self._data_of(call)
        if call.get("batch_size") is not None:
            sizes.setdefault("global_batch_size", call.pop("batch_size"))
        if self._factory.plan is None:
            self._factory.plan = plan_for_data(
                self._factory.topology, data, validation_data=validation, **sizes
            )
        elif sizes:
            raise PlanError(_planned_already(sizes, self._factory.plan))
        return (), call

    def feed(
        self, model: keras.Model, hp: keras_tuner.HyperParameters, before_fit: BeforeFit
    ) -> None:
        """Puts this feeding between `model.fit` and whoever calls it, for one trial.

        Args:
            model: A model of the factory.
            hp: The trial's hyperparameters.
            before_fit: Is called before each `fit`, when its data is known.
        """
        fit = model.fit

        def fed(*args: Any, **kwargs: Any) -> keras.callbacks.History:
            call = {**_bound(args, kwargs), "verbose": 0}
            planned = self._planned(call, hp)
            if planned is None:
                return fit(**self._as_it_comes(model, call, before_fit))
            return fit(**self._by_plan(model, call, planned, before_fit))

        object.__setattr__(model, "fit", fed)

    def _planned(self, call: dict[str, Any], hp: keras_tuner.HyperParameters) -> BatchPlan | None:
        """Returns the plan of a call of `fit`, or `None` where the call cuts the data itself."""
        if self._decides_batch:
            return self._factory.plan_for(hp)
        if any(call.get(name) is not None for name in _CUTS):
            return None
        data, validation = self._data_of(call)
        topology = self._factory.topology
        facts = inspect_data(data)
        sizes = {}
        if facts.kind == "arrays" or not facts.is_batched:
            if facts.num_samples is None:
                return None
            given = call.get("batch_size")
            size = KERAS_BATCH if given is None else require_count("batch_size", given, 1)
            size = min(size, facts.num_samples)
            if size % topology.num_replicas:
                return None
            sizes = {"global_batch_size": size}
        elif facts.num_samples is None or (facts.batch_size or 0) % topology.num_replicas:
            return None
        if validation is not None and inspect_data(validation).num_samples is None:
            return None
        return plan_for_data(topology, data, validation_data=validation, **sizes)

    def _by_plan(
        self, model: keras.Model, call: dict[str, Any], plan: BatchPlan, before_fit: BeforeFit
    ) -> dict[str, Any]:
        """Returns the arguments of `fit` that follow a plan."""
        data, validation = self._data_of(call)
        shuffle = call.get("shuffle", True) is not False
        train = self._dataset(data, plan, training=True, shuffle=shuffle)
        valid = None
        if validation is not None:
            valid = self._dataset(validation, plan, training=False, shuffle=False)
        if model.steps_per_execution == 1:
            model.steps_per_execution = plan.steps_per_execution
        given = call.get("callbacks") or []
        before_fit(model, plan, train, given, valid is not None)
        taken = ("x", "y", "sample_weight", "batch_size", "validation_data", "validation_split")
        rest = {name: value for name, value in call.items() if name not in (*taken, *_CUTS)}
        callbacks = [*_quiet(plan_callbacks(plan, train)), *given]
        return {
            **rest,
            "x": train,
            "validation_data": valid,
            **plan.fit_args(),
            "callbacks": callbacks,
        }

    def _as_it_comes(
        self, model: keras.Model, call: dict[str, Any], before_fit: BeforeFit
    ) -> dict[str, Any]:
        """Returns the arguments of `fit` as they were, with the kit's callbacks and checks."""
        data, validation = self._data_of(call)
        epochs = call.get("epochs", 1)
        kit = callbacks_for(
            model,
            data,
            batch_size=call.get("batch_size"),
            validation_data=validation,
            steps_per_epoch=call.get("steps_per_epoch"),
            validation_steps=call.get("validation_steps"),
            epochs=epochs,
        )
        given = call.get("callbacks") or []
        before_fit(model, None, None, given, validation is not None)
        if isinstance(data, tf.data.Dataset):
            # Keras's default only warns, since a dataset shuffles itself.
            call = {**call, "shuffle": False}
        return {**call, "callbacks": [*_quiet(kit), *given]}

    def _data_of(self, call: dict[str, Any]) -> tuple[Any, Any]:
        """Returns training and validation data of a call of `fit`, each as one object."""
        data = _joined(call.get("x"), call.get("y"), call.get("sample_weight"))
        if inspect.isgenerator(data):
            raise DataError(_runs_dry())
        validation = call.get("validation_data")
        if isinstance(validation, list):
            validation = tuple(validation)
        split = call.get("validation_split") or 0.0
        if split and validation is None:
            facts = inspect_data(data)
            refuse(DataError, check_validation_split(facts.kind, facts.num_samples, split))
            return self._split(data, split)
        return data, validation

    def _split(self, data: Any, share: float) -> tuple[Any, Any]:
        """Returns all but the last rows of arrays, and the last ones, as Keras splits them."""
        leaves = tf.nest.flatten(data)
        key = (*map(id, leaves), share)
        if key not in self._splits:
            first = math.floor(len(leaves[0]) * (1.0 - share))
            self._splits[key] = (
                leaves,
                tf.nest.map_structure(lambda column: column[:first], data),
                tf.nest.map_structure(lambda column: column[first:], data),
            )
        return self._splits[key][1:]

    def _dataset(
        self, data: Any, plan: BatchPlan, *, training: bool, shuffle: bool
    ) -> tf.data.Dataset:
        """Returns the dataset of a plan, made once for all trials that have the same plan."""
        leaves = [data] if isinstance(data, tf.data.Dataset) else tf.nest.flatten(data)
        key = (*map(id, leaves), plan, training, shuffle)
        if key not in self._datasets:
            dataset = make_dataset(data, plan, training=training, shuffle=shuffle, seed=self._seed)
            self._datasets[key] = (leaves, dataset)
        return self._datasets[key][1]


def _bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call of `fit` by name."""
    named = _FIT.bind_partial(None, *args, **kwargs).arguments
    return {name: value for name, value in named.items() if name != "self"}


def _joined(x: Any, y: Any, sample_weight: Any) -> Any:
    """Returns what `fit` takes in three arguments as one."""
    if y is None and sample_weight is None:
        return x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


def _quiet(callbacks: list[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns the kit's callbacks without their own tables: the search has one for all trials."""
    for each in callbacks:
        if isinstance(each, ThroughputMonitor):
            each.verbose = False
    return callbacks


def _runs_dry() -> Finding:
    return Finding(
        "search-data-runs-dry",
        "error",
        what="The search's data is a Python generator.",
        why="The first trial would use it up, and the others would train on nothing.",
        fix="Pass arrays, a tf.data.Dataset (tf.data.Dataset.from_generator makes one), or a "
        "keras.utils.PyDataset.",
    )


def _planned_already(sizes: dict[str, int], plan: BatchPlan) -> Finding:
    name, size = next(iter(sizes.items()))
    return Finding(
        "plan-said-twice",
        "error",
        what=f"{name}={size} is passed to search, and the factory has a plan of "
        f"global_batch_size={plan.global_batch_size}.",
        why="The plan decides all sizes.",
        fix=f"Leave out {name}, or make the factory without a plan.",
    )
