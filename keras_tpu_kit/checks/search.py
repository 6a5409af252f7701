"""Rules on searches: where they may run, what they may optimise, when they may go on."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from keras_tpu_kit.errors import Finding

# What the kit's ThroughputMonitor logs each epoch, and which way is better.
THROUGHPUT_OBJECTIVES = {
    "samples_per_second": "max",
    "samples_per_second_per_replica": "max",
    "step_seconds": "min",
    "input_wait_share": "min",
    "mfu": "max",
    "scaling_efficiency": "max",
}


def check_open_scope(is_open: bool) -> Finding | None:
    """Returns a finding where a search is made or run inside `strategy.scope()`."""
    if not is_open:
        return None
    return Finding(
        "search-in-open-scope",
        "error",
        what="A search is made or run inside an open strategy.scope().",
        why="Trials are trained one after the other, and each opens the scope around its own "
        "model; a scope around all of them mixes their states.",
        fix="Leave the `with strategy.scope():` block, and pass strategy=strategy to the tuner.",
    )


def check_objective(
    names: Sequence[str], known: Iterable[str], has_validation: bool = True
) -> Finding | None:
    """Returns a finding where an objective is not among what training logs.

    Args:
        names: The objectives.
        known: What an epoch will log.
        has_validation: Whether there is validation data.

    Example:

    >>> check_objective(["val_acuracy"], ["loss", "accuracy", "val_loss", "val_accuracy"]).fix
    'Use objective="val_accuracy".'
    """
    known = sorted(known)
    for name in names:
        if name in known:
            continue
        if name.startswith("val_") and not has_validation:
            why = "There is no validation data, so no name begins with val_."
            fix = f'Pass validation_data= to search, or use objective="{name[4:]}".'
        else:
            why = f"Training logs {', '.join(known)}."
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5) or known[:1]
            fix = f'Use objective="{near[0]}".' if near else "Use a name that training logs."
        return Finding(
            "objective-unknown",
            "error",
            what=f"objective={name!r} is not among what training logs.",
            why=why,
            fix=fix,
        )
    return None


def objective_not_measured(name: str, epochs: int) -> Finding:
    """Returns the finding for an objective that had no value in any epoch of a trial.

    Args:
        name: The objective.
        epochs: Epochs that the trial trained.
    """
    why = "A trial without its objective's value cannot be compared with others."
    fix = "Validate at least once in a trial: lower validation_freq, or train more epochs."
    if name in THROUGHPUT_OBJECTIVES:
        why = "The first execution of a training compiles and is not measured."
        fix = "Train at least two epochs, or fewer steps in an execution."
    return Finding(
        "objective-not-measured",
        "error",
        what=f"objective={name!r} had no value in the {epochs} epochs of a trial.",
        why=why,
        fix=fix,
    )


def check_failures(failed_in_a_row: int, limit: int | None, reason: str) -> Finding | None:
    """Returns a finding where too many trials in a row failed.

    Args:
        failed_in_a_row: Trials that failed, the last one included.
        limit: `max_consecutive_failed_trials`, or `None` for no limit.
        reason: Why the last one failed.
    """
    if limit is None or failed_in_a_row < limit:
        return None
    return Finding(
        "too-many-failures",
        "error",
        what=f"{failed_in_a_row} trials failed in a row; the last one said: {reason}",
        why=f"max_consecutive_failed_trials={limit} takes that for a fault that the next trials "
        "share.",
        fix="Mend what the trials say, or raise max_consecutive_failed_trials.",
    )


def check_any_finished(finished: int, reasons: Sequence[str]) -> Finding | None:
    """Returns a finding where a search ended without a trial that can be used.

    Args:
        finished: Trials with a value of the objective.
        reasons: How each of the others ended.
    """
    if finished:
        return None
    told = "; ".join(f"{count} x {reason}" for reason, count in Counter(reasons).most_common(3))
    return Finding(
        "search-without-result",
        "error",
        what=f"The search ended with no finished trial out of {len(reasons)}.",
        why=told + "." if told else "The oracle had no trial to run.",
        fix="Narrow the search space to values that can train, or raise max_trials.",
    )


def nothing_was_left(ended: int) -> Finding:
    """Returns what to know of a search that had no trial to run.

    Args:
        ended: Trials that had ended before.
    """
    return Finding(
        "search-was-over",
        "info",
        what=f"All {ended} trials of this project had ended before; nothing was trained.",
        why="A search goes on where it stopped, with the data and epochs that its trials had.",
        fix="Raise max_trials to search on, or pass overwrite=True or another project_name= to "
        "begin anew.",
    )


def check_search_arguments(
    names: Iterable[str], known: Iterable[str], sizes: Iterable[str], takes_sizes: bool
) -> Finding | None:
    """Returns a finding where `search` is given what it does not know.

    Args:
        names: Arguments that were given by name.
        known: What `model.fit` takes.
        sizes: What `plan_batches` takes.
        takes_sizes: Whether the models come from a `ModelFactory`, which is planned for.

    Example:

    >>> check_search_arguments(["epoch"], ["epochs", "x"], [], takes_sizes=False).fix
    'Use epochs=.'
    """
    known, sizes = list(known), list(sizes)
    taken = [*known, *sizes] if takes_sizes else known
    for name in names:
        if name in taken:
            continue
        near = difflib.get_close_matches(name, taken, n=1)
        fix = f"Use {near[0]}=." if near else f"Leave out {name}=."
        why = "search takes what model.fit takes, and for a ModelFactory the sizes of a plan."
        if name in sizes:
            fix = "Use batch_size=, rows over all replicas, or search a ktk.ModelFactory."
        return Finding(
            "search-argument",
            "error",
            what=f"search was given {name}=, which it does not take here.",
            why=why,
            fix=fix,
        )
    return None


def check_memory(
    batch_size: int, num_weights: int, exhausted: Iterable[tuple[int, int]]
) -> Finding | None:
    """Returns a finding where a trial needs at least what ran out of memory before.

    Args:
        batch_size: Rows of one step on one replica.
        num_weights: Scalars in the model's weights.
        exhausted: The same two numbers of each trial that ran out of memory.

    Example:

    >>> check_memory(512, 1000, [(256, 1000)]).code
    'memory-known-short'
    >>> check_memory(512, 900, [(256, 1000)]) is None
    True
    """
    for batch, weights in exhausted:
        if batch_size >= batch and num_weights >= weights:
            return Finding(
                "memory-known-short",
                "error",
                what=f"per_replica_batch_size={batch_size} with {num_weights} weights was not "
                "tried.",
                why=f"per_replica_batch_size={batch} with {weights} weights ran out of memory.",
                fix=f"Search batch sizes below {batch}, or smaller models.",
            )
    return None


def check_compile_args(is_factory: bool, given: Mapping[str, Any]) -> Finding | None:
    """Returns a finding where a tuner shall compile what a factory compiles.

    Args:
        is_factory: Whether a `ModelFactory` makes the models.
        given: `optimizer`, `loss` and `metrics` as passed to the tuner, `None` for not given.
    """
    names = [name for name, value in given.items() if value is not None]
    if not is_factory or not names:
        return None
    return Finding(
        "compiled-twice",
        "error",
        what=f"{names[0]}= is passed to the tuner of a ModelFactory.",
        why="The factory's compile_args says how its models learn, and one of the two would be "
        "ignored.",
        fix=f"Return {names[0]!r} from ModelFactory.compile_args, and leave it out here.",
        cures=({"given": {}},),
    )


def is_hopeful(value: float) -> bool:
    """Returns whether an objective or loss can still be compared: it is finite."""
    return math.isfinite(value)


def check_oracle(is_oracle: bool) -> Finding | None:
    """Returns a finding where a tuner of any oracle is given none.

    Args:
        is_oracle: Whether what was given is a `keras_tuner.Oracle`.
    """
    if is_oracle:
        return None
    return Finding(
        "search-without-oracle",
        "error",
        what="StrategyTuner is given no keras_tuner.Oracle.",
        why="The oracle chooses the values of each trial.",
        fix='Pass oracle=keras_tuner.oracles.RandomSearchOracle("val_loss", max_trials=20), or '
        "use ktk.RandomSearch, which makes its own.",
    )


def check_pruner(algorithm: str, pruner: Any) -> Finding | None:
    """Returns a finding where a pruner is given to an algorithm that has its own rule.

    Args:
        algorithm: Name of the oracle's class.
        pruner: The pruner, or `None`.
    """
    if pruner is None:
        return None
    if isinstance(pruner, type) or not hasattr(pruner, "should_end"):
        return Finding(
            "pruner-unknown",
            "error",
            what=f"pruner={pruner!r} is no pruner.",
            why="A pruner is an object whose should_end(own, others, direction) says which trials "
            "end.",
            fix="Use pruner=ktk.MedianPruner() or pruner=ktk.PatiencePruner(), brackets included.",
            cures=({"pruner": None},),
        )
    if "Hyperband" not in algorithm:
        return None
    return Finding(
        "pruner-with-hyperband",
        "error",
        what=f"{type(pruner).__name__} is given to a Hyperband search.",
        why="Hyperband decides itself which trials go on, by comparing whole rounds.",
        fix="Leave out pruner=, or use RandomSearch or BayesianOptimization with it.",
        cures=({"pruner": None},),
    )
