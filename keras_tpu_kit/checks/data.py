"""Rules on what can be fed to several replicas, said on names of kinds and dtypes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from keras_tpu_kit.errors import Finding


def check_generator(kind: str, num_replicas: int) -> Finding | None:
    """Returns a finding where a raw Python generator would lose batches.

    Args:
        kind: Name of the data's type, such as `"generator"` or `"ndarray"`.
        num_replicas: Replicas in sync.

    Example:

    >>> check_generator("generator", 2).code
    'generator-loses-data'
    >>> check_generator("ndarray", 2) is None
    True
    """
    if kind != "generator" or num_replicas == 1:
        return None
    return Finding(
        "generator-loses-data",
        "error",
        what=f"The data is a Python generator, and {num_replicas} replicas train.",
        why="Keras peeks into a generator and tf.distribute prefetches from it, so batches are "
        "lost without a word (of 6 batches 3 were used).",
        fix="Use a keras.utils.PyDataset, or tf.data.Dataset.from_generator(..., "
        "output_signature=...).",
        cures=({"kind": "PyDataset"},),
    )


def check_feedable(kind: str) -> Finding | None:
    """Returns a finding where data is of a kind that no batches can be made of.

    Args:
        kind: Name of the data's kind, as `datasets.inspect_data` gives it.

    Example:

    >>> print(check_feedable("str").what)
    The data is a str, which holds no rows that can be batched.
    """
    if kind in ("arrays", "dataset", "PyDataset"):
        return None
    why = {
        "generator": "A generator can be read once, and an epoch needs its rows again.",
        "distributed": "A distributed dataset is cut over replicas already, so it goes to fit "
        "as it is.",
    }.get(kind, "Rows have to be counted, shuffled and gathered.")
    return Finding(
        "data-not-feedable",
        "error",
        what=f"The data is a {kind}, which holds no rows that can be batched.",
        why=why,
        fix="Pass arrays such as (x, y) of np.ndarray, a tf.data.Dataset, or a "
        "keras.utils.PyDataset.",
        cures=({"kind": "arrays"},),
    )


def check_input_kind(name: str, kind: str, num_replicas: int) -> Finding | None:
    """Returns a finding where a column cannot be cut over replicas.

    Args:
        name: The column, as the user spells it (`"x['tags']"`).
        kind: `"dense"`, `"sparse"` or `"ragged"`.
        num_replicas: Replicas in sync.

    Example:

    >>> print(check_input_kind("x['tags']", "ragged", 2).what)
    x['tags'] is ragged, and 2 replicas train.
    """
    if kind == "dense" or num_replicas == 1:
        return None
    cure = ".to_tensor(shape=[None, 128])" if kind == "ragged" else "tf.sparse.to_dense(...)"
    return Finding(
        "input-not-dense",
        "error",
        what=f"{name} is {kind}, and {num_replicas} replicas train.",
        why=f"Keras 3 cannot average or cut a {kind} tensor over replicas; it fails in the "
        "first step.",
        fix=f"Make it dense in the dataset: dataset.map(...) with {cure}.",
        cures=({"kind": "dense"},),
    )


def check_input_dtype(name: str, dtype: str, num_replicas: int) -> Finding | None:
    """Returns a finding where stock Keras averages a column that has no mean.

    A model that went through `ktk.replicate` is not concerned.

    Args:
        name: The column, as the user spells it.
        dtype: Its dtype's name.
        num_replicas: Replicas in sync.

    Example:

    >>> check_input_dtype("x['id']", "string", 2).code
    'input-dtype'
    """
    if dtype not in ("string", "bool") or num_replicas == 1:
        return None
    return Finding(
        "input-dtype",
        "error",
        what=f"{name} holds {dtype} values, and {num_replicas} replicas train.",
        why="Before the first step Keras averages a batch over the replicas, which "
        f"{dtype} values do not allow.",
        fix="Feed the model through ktk.replicate(model), which needs no such step, or cast the "
        "column in the dataset.",
        cures=({"dtype": "int32"},),
    )


def check_batched(is_batched: bool) -> Finding | None:
    """Returns a finding where a dataset that needs batches yields single rows.

    Args:
        is_batched: Whether each element has a batch axis.

    Example:

    >>> check_batched(False).code
    'dataset-not-batched'
    """
    if is_batched:
        return None
    return Finding(
        "dataset-not-batched",
        "error",
        what="The dataset yields single rows, not batches.",
        why="The model would read the first axis of a row as its batch.",
        fix="Call .batch(global_batch_size) on it, or pass it to ktk.make_dataset(data, plan).",
        cures=({"is_batched": True},),
    )


def check_prefetch(is_prefetched: bool) -> Finding | None:
    """Returns advice where the device waits while the host prepares the next batch.

    Args:
        is_prefetched: Whether the dataset's last transformation is a prefetch.

    Example:

    >>> check_prefetch(False).severity
    'info'
    """
    if is_prefetched:
        return None
    return Finding(
        "prefetch-missing",
        "info",
        what="The training dataset does not end in a prefetch.",
        why="The accelerator waits while the host prepares each batch.",
        fix="End it with .prefetch(tf.data.AUTOTUNE).",
        cures=({"is_prefetched": True},),
    )


def check_lengths(lengths: Iterable[tuple[str, int]]) -> Finding | None:
    """Returns a finding where arrays that belong together differ in length.

    Args:
        lengths: Name and number of rows of each array.

    Example:

    >>> print(check_lengths([("x", 10), ("y", 9)]).what)
    The arrays differ in length: x 10, y 9.
    """
    named = list(lengths)
    if len({rows for _, rows in named}) <= 1:
        return None
    told = ", ".join(f"{name} {rows}" for name, rows in named)
    return Finding(
        "lengths-differ",
        "error",
        what=f"The arrays differ in length: {told}.",
        why="Row i of each array belongs to one sample.",
        fix=f"Cut all of them to {min(rows for _, rows in named)} rows, or find the missing ones.",
        cures=({"lengths": [(name, min(r for _, r in named)) for name, _ in named]},),
    )


def check_rows_planned(rows: int, planned: int, argument: str = "num_samples") -> Finding | None:
    """Returns a finding where data holds other rows than its plan was made for.

    Args:
        rows: Rows of the data.
        planned: Rows that the plan counts on.
        argument: The plan's name for them.

    Example:

    >>> print(check_rows_planned(640, 600).what)
    The data holds 640 rows, and the plan was made for num_samples=600.
    """
    if rows == planned:
        return None
    return Finding(
        "rows-not-planned",
        "error",
        what=f"The data holds {rows} rows, and the plan was made for {argument}={planned}.",
        why="Steps, epochs and the order of the rows all follow from that number.",
        fix=f"Use ktk.plan_for_data(topology, data, ...), or dataclasses.replace(plan, "
        f"{argument}={rows}).",
        cures=({"planned": rows},),
    )


def check_batch_planned(batch_size: int, planned: int) -> Finding | None:
    """Returns a finding where a dataset's batches are not those of its plan.

    Args:
        batch_size: Rows of a whole batch of the dataset.
        planned: Rows of one step over all replicas in the plan.

    Example:

    >>> check_batch_planned(32, 64).code
    'batch-not-planned'
    """
    if batch_size == planned:
        return None
    return Finding(
        "batch-not-planned",
        "error",
        what=f"The dataset comes in batches of {batch_size} rows, and the plan takes "
        f"global_batch_size={planned}.",
        why="A dataset that is batched already is taken as it is, so the plan would describe "
        "another training.",
        fix=f"Make the plan from it with ktk.plan_for_data(topology, data), batch it by "
        f"{planned}, or pass it unbatched.",
        cures=({"planned": batch_size},),
    )


def check_validation_split(
    kind: str, num_samples: int | None, validation_split: float
) -> Finding | None:
    """Returns a finding where `fit` cannot split validation rows off the training data.

    Args:
        kind: Name of the data's kind, as `datasets.inspect_data` gives it.
        num_samples: Rows of the data, or `None` where unknown.
        validation_split: As passed to `fit`.

    Example:

    >>> print(check_validation_split("dataset", 100, 0.2).what)
    validation_split=0.2, and the data is a dataset.
    >>> check_validation_split("arrays", 100, 0.2) is None
    True
    """
    if kind != "arrays":
        what = f"validation_split={validation_split}, and the data is a {kind}."
        why = "Keras splits arrays only, which it can slice."
        fix = "Take the rows yourself, with .take() and .skip(), and pass validation_data."
        cure: dict[str, object] = {"kind": "arrays"}
    elif num_samples is not None and 0 in split_rows(num_samples, validation_split):
        what = f"validation_split={validation_split} of {num_samples} rows leaves nothing to train "
        what += "on or nothing to validate on."
        why = "It is the share of the last rows that are validated on instead of trained on."
        fix = "Use a number between 0 and 1, such as validation_split=0.2, or pass more rows."
        cure = {"validation_split": 0.2}
    else:
        return None
    return Finding("validation-split", "error", what=what, why=why, fix=fix, cures=(cure,))


def split_rows(num_samples: int, validation_split: float) -> tuple[int, int]:
    """Returns the rows that `fit` trains on, the first ones, and the rows it validates on.

    Args:
        num_samples: Rows of the arrays.
        validation_split: As passed to `fit`; a number outside 0 to 1 leaves 0 for one of them.

    Example:

    >>> split_rows(101, 0.2)
    (80, 21)
    """
    training = min(max(math.floor(num_samples * (1.0 - validation_split)), 0), num_samples)
    return training, num_samples - training


def check_targets(columns: Sequence[str], takes_targets: bool) -> Finding | None:
    """Returns a finding where a model with a loss gets inputs and nothing to compare with.

    Args:
        columns: Names of the data's columns, as `datasets.inspect_data` gives them.
        takes_targets: Whether the model compares what it computes with targets.

    Example:

    >>> check_targets(["x"], takes_targets=True).code
    'targets-missing'
    >>> check_targets(["x", "y"], takes_targets=True) is None
    True
    """
    has_targets = any(name.split("[")[0] == "y" for name in columns)
    if has_targets or not takes_targets or not columns:
        return None
    return Finding(
        "targets-missing",
        "error",
        what=f"The data holds inputs ({', '.join(columns)}) and no targets.",
        why="The model was compiled with a loss, which compares its outputs with targets.",
        fix="Pass a tuple, (x, y) or (x, y, sample_weight), and (x, x) for an autoencoder; a list "
        "is read as several inputs.",
        cures=({"columns": [*columns, "y"]},),
    )


# What Keras's `fit` takes and the kit's plan and datasets decide, with what to do instead.
_DECIDED = {
    "batch_size": "Pass global_batch_size, rows over all replicas, or per_replica_batch_size.",
    "validation_batch_size": "Leave it out: validation is cut so that every row counts once.",
    "validation_split": "Split the arrays yourself, and pass validation_data=(x, y).",
    "sample_weight": "Pass the data as (x, y, sample_weight).",
    "steps_per_execution": "Pass it to plan_batches, and the plan to the factory.",
    "x": "Pass the data as (x, y), as the first argument.",
    "y": "Pass the data as (x, y), as the first argument.",
}


def check_fit_arguments(names: Sequence[str]) -> Finding | None:
    """Returns a finding where an argument of Keras's `fit` would be ignored or refused.

    Args:
        names: Arguments that are to be passed on to `model.fit`.

    Example:

    >>> print(check_fit_arguments(["batch_size"]).fix)
    Pass global_batch_size, rows over all replicas, or per_replica_batch_size.
    >>> check_fit_arguments(["class_weight"]) is None
    True
    """
    decided = [name for name in names if name in _DECIDED]
    if not decided:
        return None
    return Finding(
        "fit-argument-decided",
        "error",
        what=f"{decided[0]} is passed to fit, where the plan and the dataset decide it.",
        why="The kit feeds Keras a dataset, for which Keras ignores it or stops.",
        fix=_DECIDED[decided[0]],
        cures=({"names": [name for name in names if name not in _DECIDED]},),
    )
