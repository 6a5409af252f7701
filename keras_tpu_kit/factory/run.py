"""The whole recipe in one call: detect, plan, build, train."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import typing
from collections.abc import Sequence
from typing import Any

import keras
import keras_tuner
import tensorflow as tf

from keras_tpu_kit import report
from keras_tpu_kit.callbacks import StopOnPreemption, ThroughputMonitor, plan_callbacks
from keras_tpu_kit.callbacks.expectation import missing_targets
from keras_tpu_kit.checks.data import check_fit_arguments, check_rows_planned
from keras_tpu_kit.datasets import inspect_data, make_dataset, plan_for_data
from keras_tpu_kit.errors import DataError, Finding, PlanError, refuse
from keras_tpu_kit.factory import hooks
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.throughput import Throughput

if typing.TYPE_CHECKING:
    from keras_tpu_kit.factory.model_factory import ModelFactory


@dataclasses.dataclass(frozen=True)
class Run:
    """What `ModelFactory.fit` did.

    Args:
        model: The trained model, on all replicas.
        history: What Keras's `fit` returned; `history.history` maps each name to its values.
        plan: How the data was cut.
        report: The plan with what is worth knowing about it and the model.
        monitor: What measured the executions; `monitor.plot(path)` draws them.
    """

    model: keras.Model
    history: keras.callbacks.History
    plan: BatchPlan
    report: report.Report
    monitor: ThroughputMonitor

    @property
    def throughput(self) -> Throughput:
        """What the executions of all epochs achieved."""
        return self.monitor.throughput


def fit(
    factory: ModelFactory,
    data: Any,
    *,
    validation_data: Any = None,
    global_batch_size: int | None = None,
    per_replica_batch_size: int | None = None,
    target_batch_size: int | None = None,
    steps_per_epoch: int | None = None,
    num_samples: int | None = None,
    num_validation_samples: int | None = None,
    epochs: int | None = None,
    seed: int | None = None,
    hp: keras_tuner.HyperParameters | None = None,
    backup_dir: str | os.PathLike[str] | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | keras.callbacks.Callback | None = None,
    verbose: int | str = "auto",
    **fit_args: Any,
) -> Run:
    """Returns a trained model, after planning the data over the factory's replicas.

    Args:
        factory: Says what the model is. Its own plan is used where it has one.
        data: What `make_dataset` takes: arrays `(x, y)` or `(x, y, sample_weight)`, an unbatched
            dataset, or a batched one, which is taken as it is.
        validation_data: The same for validation, or `None`; every row is counted once.
        global_batch_size: Rows of one step over all replicas; or one of the following three,
            as in `plan_batches`.
        per_replica_batch_size: Rows of one step on one replica.
        target_batch_size: About how many rows a step takes.
        steps_per_epoch: Steps of one epoch.
        num_samples: Rows of an epoch, for a dataset that does not tell.
        num_validation_samples: The same for the validation data.
        epochs: Epochs; by default what the factory's `fit_args` says, or 1.
        seed: Makes weights, shuffling and dropout reproducible; `None` leaves them random.
        hp: Hyperparameters, such as the best of a search.
        backup_dir: A folder for `StopOnPreemption`: on SIGTERM the training is saved there and
            the process exits with code 75; the same call goes on from there. The seed is then 0
            if it is not given: both runs must see the rows in one order.
        callbacks: Further callbacks; the kit's own come first.
        verbose: As in Keras; `0` prints nothing, the plan included.
        **fit_args: What else `model.fit` takes; `shuffle=False` keeps the rows in their order.

    Raises:
        PlanError: If the numbers cannot work, or the plan is said twice, or by Keras's names.
        DataError: If the data cannot be fed to the replicas, or holds other rows than was said.
        FactoryError: If a hook broke its contract.
        ReplicationError: If several replicas cannot train the model right.
    """
    sizes: dict[str, Any] = {
        "global_batch_size": global_batch_size,
        "per_replica_batch_size": per_replica_batch_size,
        "target_batch_size": target_batch_size,
        "steps_per_epoch": steps_per_epoch,
        "num_samples": num_samples,
        "num_validation_samples": num_validation_samples,
    }
    # The caller's factory keeps its own plan: the next call may bring other data.
    factory = copy.copy(factory)
    if factory.plan is None:
        factory.plan = plan_for_data(
            factory.topology, data, validation_data=validation_data, **sizes
        )
    elif any(size is not None for size in sizes.values()):
        raise PlanError(_planned_already(sizes, factory.plan))
    stop = None
    if backup_dir is not None:
        seed = 0 if seed is None else seed
        stop = StopOnPreemption(backup_dir, skip_input=False)
    hp = keras_tuner.HyperParameters() if hp is None else hp
    own = hooks.require_fit_args(factory.fit_args(hp), f"{type(factory).__name__}.fit_args")
    given = {**own, **fit_args}
    refuse(PlanError, check_fit_arguments(list(given)))
    if seed is not None:
        keras.utils.set_random_seed(seed)
    model = factory.create(hp)
    plan = factory.plan_for(hp) or factory.plan
    train = make_dataset(
        data,
        plan,
        shuffle=given.pop("shuffle", True),
        seed=seed,
        initial_step=stop.initial_step if stop else 0,
    )
    refuse(DataError, missing_targets(model, inspect_data(train)))
    validation = None
    if validation_data is not None:
        validation = make_dataset(validation_data, plan, training=False)
    start = report.Report(
        f"{type(factory).__name__} on {plan.topology}",
        (*plan.findings(), *factory.findings(model)),
        plan,
    )
    if verbose:
        start.show()
    kit_callbacks = plan_callbacks(plan, train)
    if epochs is not None:
        given["epochs"] = epochs
    if verbose != "auto" or "verbose" not in given:
        given["verbose"] = verbose
    further = keras.tree.flatten([given.pop("callbacks", None) or (), callbacks or ()])
    if stop is not None:
        further.append(stop)  # Behind what restores an older state, or acts when training ends.
    try:
        history = model.fit(
            train,
            validation_data=validation,
            callbacks=[*kit_callbacks, *further],
            **{**plan.fit_args(), **given},
        )
    except tf.errors.FailedPreconditionError as error:
        refuse(DataError, _miscounted(str(error), plan))
        raise
    monitor = next(each for each in kit_callbacks if isinstance(each, ThroughputMonitor))
    return Run(model, history, plan, start, monitor)


def _planned_already(sizes: dict[str, Any], plan: BatchPlan) -> Finding:
    name, size = next((name, size) for name, size in sizes.items() if size is not None)
    return Finding(
        "plan-said-twice",
        "error",
        what=f"{name}={size} is passed to fit, and the factory has a plan of "
        f"global_batch_size={plan.global_batch_size}.",
        why="The plan decides all sizes.",
        fix=f"Leave out {name}, or make the factory without a plan.",
    )


def _miscounted(message: str, plan: BatchPlan) -> Finding | None:
    """Returns what tf.data's count of the rows means, if its message is about that."""
    counts = re.search(r"expected to contain (\d+) elements but contained \D*(\d+)", message)
    if counts is None:
        return None
    said, found = map(int, counts.groups())
    argument = "num_samples" if said == plan.num_samples else "num_validation_samples"
    return check_rows_planned(found, said, argument)
