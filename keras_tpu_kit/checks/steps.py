"""Rules on how an epoch is cut into steps, and steps into executions."""

from __future__ import annotations

from keras_tpu_kit.errors import Finding

# tf.data's own marks for a cardinality that is not a number.
INFINITE = -1
UNKNOWN = -2


def check_steps_per_execution(
    steps_per_epoch: int, steps_per_execution: int, *, ends_with_data: bool = False
) -> Finding | None:
    """Returns a finding where fused steps do not fill the epoch exactly.

    Args:
        steps_per_epoch: Steps of one epoch.
        steps_per_execution: Steps that run in one call of the train function.
        ends_with_data: Whether the dataset ends with the epoch. Then the last execution ends
            with it too, and no step is too many.

    Example:

    >>> check_steps_per_execution(8, 3).cures
    ({'steps_per_epoch': 6}, {'steps_per_epoch': 9})
    >>> check_steps_per_execution(8, 3, ends_with_data=True) is None
    True
    """
    if steps_per_execution < 1:
        return Finding(
            "steps-per-execution-empty",
            "error",
            what=f"steps_per_execution={steps_per_execution} runs no step.",
            why="An execution is at least one step.",
            fix="Use steps_per_execution=1 or more.",
            cures=({"steps_per_execution": 1},),
        )
    if ends_with_data or steps_per_epoch % steps_per_execution == 0:
        return None
    below = steps_per_epoch // steps_per_execution * steps_per_execution
    above = below + steps_per_execution
    steps = [count for count in (below, above) if count]
    return Finding(
        "steps-not-divisible",
        "error",
        what=f"steps_per_epoch={steps_per_epoch} is not a multiple of "
        f"steps_per_execution={steps_per_execution}.",
        why=f"Keras finishes an execution that the data does not end, so each epoch would run "
        f"{above} steps, not {steps_per_epoch}.",
        fix="Use " + " or ".join(f"steps_per_epoch={count}" for count in steps) + ".",
        cures=tuple({"steps_per_epoch": count} for count in steps),
    )


def check_cardinality(
    cardinality: int, steps_per_epoch: int | None, epochs: int = 1
) -> Finding | None:
    """Returns a finding where a dataset does not hold exactly the steps that are asked of it.

    Args:
        cardinality: Batches in the dataset; `INFINITE` (-1) if it repeats, `UNKNOWN` (-2).
        steps_per_epoch: Steps of one epoch, or `None` for "until the dataset ends".
        epochs: Epochs of the whole training.

    Example:

    >>> print(check_cardinality(5, steps_per_epoch=10, epochs=3).what)
    The dataset holds 5 batches, and 3 epochs of steps_per_epoch=10 ask for 30.
    >>> check_cardinality(5, steps_per_epoch=5, epochs=3) is None
    True
    """
    if cardinality == 0:
        return Finding(
            "dataset-empty",
            "error",
            what="The dataset holds no batch.",
            why="drop_remainder=True drops the only batch where it is not full.",
            fix="Use a smaller batch, drop_remainder=False, or more data.",
        )
    if steps_per_epoch is None:
        if cardinality != INFINITE:
            return None
        return Finding(
            "steps-missing",
            "error",
            what="The dataset repeats for ever and steps_per_epoch is not given.",
            why="The first epoch would never end.",
            fix="Pass steps_per_epoch=, the number of samples divided by the batch size.",
        )
    if steps_per_epoch < 1:
        return Finding(
            "steps-empty",
            "error",
            what=f"steps_per_epoch={steps_per_epoch} trains on nothing.",
            why="An epoch is at least one step.",
            fix=f"Use steps_per_epoch={max(cardinality, 1)}.",
            cures=({"steps_per_epoch": max(cardinality, 1)},),
        )
    if cardinality == INFINITE:
        return None
    if cardinality == UNKNOWN:
        return Finding(
            "steps-unknown",
            "warning",
            what=f"The dataset does not tell how many batches it holds, so steps_per_epoch="
            f"{steps_per_epoch} cannot be checked before training.",
            why="If it ends early, Keras stops in mid-epoch with no more than a warning.",
            fix="Add .repeat(), or .apply(tf.data.experimental.assert_cardinality(n)) where n is "
            "known.",
            cures=({"cardinality": INFINITE},),
        )
    if steps_per_epoch == cardinality:
        return None
    if steps_per_epoch * epochs > cardinality:
        return Finding(
            "steps-exceed-data",
            "error",
            what=f"The dataset holds {cardinality} batches, and {epochs} epochs of "
            f"steps_per_epoch={steps_per_epoch} ask for {steps_per_epoch * epochs}.",
            why="Keras starts a finite dataset anew whenever it ends, so some epochs would be "
            "short or training would stop early.",
            fix=f"Use steps_per_epoch={cardinality}, leave it out, or add .repeat() to the "
            "dataset.",
            cures=({"steps_per_epoch": cardinality}, {"cardinality": INFINITE}),
        )
    return Finding(
        "steps-leave-data",
        "warning",
        what=f"The dataset holds {cardinality} batches, and {epochs} epochs of steps_per_epoch="
        f"{steps_per_epoch} use {steps_per_epoch * epochs} of them.",
        why="Each epoch sees another part of the data, which some want and most do not.",
        fix=f"Use steps_per_epoch={cardinality} for whole epochs.",
        cures=({"steps_per_epoch": cardinality},),
    )


def check_array_steps(
    num_samples: int, steps_per_epoch: int | None, batch_size: int | None
) -> Finding | None:
    """Returns a finding where `fit` on arrays would not see each row once an epoch.

    Args:
        num_samples: Rows of the arrays.
        steps_per_epoch: As passed to `fit`.
        batch_size: As passed to `fit`; with `None`, Keras cuts `ceil(num_samples /
            steps_per_epoch)` rows a batch.

    Example:

    >>> check_array_steps(60_000, 50, None) is None
    True
    >>> check_array_steps(1000, 50, 32).cures
    ({'steps_per_epoch': 32}, {'steps_per_epoch': None})
    """
    batch = array_batch_size(num_samples, steps_per_epoch, batch_size)
    batches = -(-num_samples // batch)
    finding = check_cardinality(batches, steps_per_epoch)
    if finding is None or finding.code in ("dataset-empty", "steps-empty"):
        return finding
    return Finding(
        "steps-not-data",
        "error",
        what=f"{num_samples} rows in batches of {batch} are {batches} batches, not "
        f"steps_per_epoch={steps_per_epoch}.",
        why="Keras would leave rows out of the epoch, or run out of data in the middle of it.",
        fix=f"Leave steps_per_epoch out, or use steps_per_epoch={batches}.",
        cures=({"steps_per_epoch": batches}, {"steps_per_epoch": None}),
    )


def array_batch_size(num_samples: int, steps_per_epoch: int | None, batch_size: int | None) -> int:
    """Returns the rows of one batch that Keras cuts from arrays, in rows over all replicas.

    Source: `keras/src/trainers/data_adapters/array_data_adapter.py`: without a batch size it
    is 32, or `ceil(num_samples / steps_per_epoch)` where steps are given.

    Example:

    >>> array_batch_size(60_000, 50, None)
    1200
    """
    if batch_size is not None:
        return batch_size
    if steps_per_epoch is not None and steps_per_epoch > 0:
        return max(1, -(-num_samples // steps_per_epoch))
    return 32


def check_rows_seen(expected: int, seen: int) -> Finding | None:
    """Returns a finding where an epoch consumed other rows than were planned.

    Args:
        expected: Rows that the plan or the data promised for the epoch.
        seen: Rows that the model's loss tracker counted.

    Example:

    >>> print(check_rows_seen(640, 600).what)
    The epoch consumed 600 rows, not the 640 that were planned.
    """
    if expected == seen:
        return None
    return Finding(
        "rows-not-consumed" if seen < expected else "rows-repeated",
        "error",
        what=f"The epoch consumed {seen} rows, not the {expected} that were planned.",
        why="Rows were lost"
        + (" or dropped" if seen < expected else ", repeated")
        + " between the dataset and the step, so results do not mean what they seem to.",
        fix="Feed fit with ktk.make_dataset(data, plan) and plan.fit_args(), or compare the "
        "dataset's batches with steps_per_epoch.",
    )


def check_steps_seen(expected: int, seen: int) -> Finding | None:
    """Returns a finding where an epoch ran another number of steps than was planned.

    Example:

    >>> check_steps_seen(8, 9).code
    'steps-not-run'
    >>> check_steps_seen(8, 8) is None
    True
    """
    if expected == seen:
        return None
    return Finding(
        "steps-not-run",
        "error",
        what=f"The epoch ran {seen} steps, not the {expected} that were planned.",
        why="Too few steps mean that the data ran out, too many that steps_per_execution does "
        "not divide the epoch; learning-rate schedules count them all.",
        fix="Feed fit with ktk.make_dataset(data, plan) and plan.fit_args(), or compare the "
        "dataset's batches with steps_per_epoch.",
    )


def check_steps_announced(planned: int, announced: int) -> Finding | None:
    """Returns a finding where `fit` is about to run other steps than the plan has.

    Args:
        planned: Steps of one epoch in the plan.
        announced: Steps of one epoch that `fit` works with.

    Example:

    >>> print(check_steps_announced(50, 1875).what)
    fit is about to run 1875 steps an epoch, and the plan has 50.
    """
    if planned == announced:
        return None
    return Finding(
        "steps-not-planned",
        "error",
        what=f"fit is about to run {announced} steps an epoch, and the plan has {planned}.",
        why="Schedules, checkpoints and the figures of a run count on the plan's steps.",
        fix=f"Pass **plan.fit_args(), or steps_per_epoch={planned}, to fit.",
        cures=({"announced": planned},),
    )


def check_backup_position(saved: int, begun: int) -> Finding | None:
    """Returns a finding where another callback began training before the saved position.

    Args:
        saved: Epoch of the state that `StopOnPreemption` saved.
        begun: Epoch at which training has begun.

    Example:

    >>> check_backup_position(3, 1).code
    'backup-behind'
    """
    if begun >= saved:
        return None
    return Finding(
        "backup-behind",
        "error",
        what=f"Training was saved in epoch {saved}, and another callback began it at {begun}.",
        why="Both brought a state of their own back, and the steps in between would be skipped.",
        fix="Put StopOnPreemption last in the list of callbacks, behind BackupAndRestore.",
        cures=({"begun": saved},),
    )


def check_fused_steps(
    steps_per_execution: int, num_replicas: int, reduces_collectively: bool
) -> Finding | None:
    """Returns a finding where stock Keras cannot fuse steps on several replicas.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        steps_per_execution: Steps that run in one call of the train function.
        num_replicas: Replicas in sync.
        reduces_collectively: Whether the strategy sums gradients by collectives, as
            `MirroredStrategy` does by default.

    Example:

    >>> check_fused_steps(10, 2, True).code
    'fused-steps-on-replicas'
    """
    if steps_per_execution == 1 or num_replicas == 1 or not reduces_collectively:
        return None
    return Finding(
        "fused-steps-on-replicas",
        "error",
        what=f"steps_per_execution={steps_per_execution}, and {num_replicas} replicas sum their "
        "gradients by collectives.",
        why="Keras's fused loop and the collectives exclude each other; the first step stops "
        "with `must feed a value for placeholder`.",
        fix="Feed the model through ktk.replicate(model), which fuses steps on any strategy, or "
        "use steps_per_execution=1.",
        cures=({"steps_per_execution": 1},),
    )
