"""Rules on how a batch is cut over replicas. All sizes are in rows."""

from __future__ import annotations

from keras_tpu_kit.errors import Finding

# Source: Cloud TPU performance guide, https://cloud.google.com/tpu/docs/performance-guide:
# the compiler pads to tiles of 8 x 128, and the batch is one of the two dimensions.
TPU_BATCH_MULTIPLE = 8
TPU_BATCH_IDEAL = 128


def check_global_batch(global_batch_size: int, num_replicas: int) -> Finding | None:
    """Returns a finding where a training batch does not divide evenly over the replicas.

    Args:
        global_batch_size: Rows of one step over all replicas.
        num_replicas: Replicas in sync.

    Example:

    >>> check_global_batch(100, 8).cures
    ({'global_batch_size': 96}, {'global_batch_size': 104})
    """
    if global_batch_size < 1:
        return Finding(
            "batch-empty",
            "error",
            what=f"global_batch_size={global_batch_size} holds no row.",
            why="Every replica needs at least one row a step.",
            fix=f"Use global_batch_size={num_replicas} or a multiple of it.",
            cures=({"global_batch_size": num_replicas},),
        )
    if global_batch_size < num_replicas:
        return Finding(
            "batch-leaves-replicas-empty",
            "error",
            what=f"global_batch_size={global_batch_size} is smaller than the "
            f"{num_replicas} replicas.",
            why=f"{num_replicas - global_batch_size} replicas would get no row, and "
            "BatchNormalization turns non-finite on an empty replica.",
            fix=f"Use global_batch_size={num_replicas} or a multiple of it.",
            cures=({"global_batch_size": num_replicas},),
        )
    if global_batch_size % num_replicas:
        below = global_batch_size // num_replicas * num_replicas
        above = below + num_replicas
        return Finding(
            "batch-not-divisible",
            "error",
            what=f"global_batch_size={global_batch_size} does not divide over the "
            f"{num_replicas} replicas.",
            why="Rows of a short shard would weigh more than others, so the weights would not be "
            "those of one device.",
            fix=f"Use global_batch_size={below} or global_batch_size={above}.",
            cures=({"global_batch_size": below}, {"global_batch_size": above}),
        )
    return None


def check_batch_fits_data(
    global_batch_size: int, num_samples: int, num_replicas: int = 1
) -> Finding | None:
    """Returns a finding where the data is too small for even one batch.

    Args:
        global_batch_size: Rows of one step over all replicas.
        num_samples: Rows of the training data.
        num_replicas: Replicas in sync, which the batch must divide over.

    Example:

    >>> print(check_batch_fits_data(64, 50, 8).fix)
    Use global_batch_size=48 or less, or more data.
    """
    if num_samples >= global_batch_size:
        return None
    most = num_samples // num_replicas * num_replicas
    return Finding(
        "batch-larger-than-data",
        "error",
        what=f"num_samples={num_samples} is less than one batch of "
        f"global_batch_size={global_batch_size}.",
        why="An epoch would have no step.",
        fix=f"Use global_batch_size={most} or less, or more data."
        if most
        else f"Train on fewer than {num_replicas} replicas, or on more data.",
        cures=({"global_batch_size": most},) if most else (),
    )


def check_rows_dropped(
    num_samples: int, global_batch_size: int, nearest_batch_size: int
) -> Finding | None:
    """Returns a warning where an epoch of whole batches leaves rows over.

    Args:
        num_samples: Rows of the training data.
        global_batch_size: Rows of one step over all replicas.
        nearest_batch_size: The batch near that size which leaves the fewest rows over.

    Example:

    >>> finding = check_rows_dropped(1000, 300, nearest_batch_size=250)
    >>> print(finding.what, finding.fix, sep="\\n")
    100 of 1000 rows (10.0 %) are left out of each epoch.
    Use global_batch_size=250, which leaves out 0, or accept it.
    """
    dropped = num_samples % global_batch_size
    if not dropped:
        return None
    least = num_samples % nearest_batch_size
    return Finding(
        "rows-dropped",
        "warning",
        what=f"{dropped} of {num_samples} rows ({dropped / num_samples:.1%}) are left out of "
        "each epoch.".replace("%)", " %)"),
        why=f"They do not fill a batch of {global_batch_size}; a shuffled dataset leaves out "
        "others each epoch, an unshuffled one always the same.",
        fix=f"Use global_batch_size={nearest_batch_size}, which leaves out {least}, or accept it."
        if least < dropped
        else "Accept it: no batch from half to twice that size leaves out fewer.",
        cures=({"global_batch_size": nearest_batch_size},) if least == 0 else (),
    )


def check_ragged_batch(batch_rows: int, num_replicas: int) -> Finding | None:
    """Returns a finding where a batch that is met in the data is cut unevenly.

    Unlike `check_global_batch` this speaks of a batch that exists, such as the last one of a
    finite dataset.

    Args:
        batch_rows: Rows of that batch over all replicas.
        num_replicas: Replicas in sync.

    Example:

    >>> check_ragged_batch(37, 4).code
    'batch-uneven'
    """
    if batch_rows % num_replicas == 0:
        return None
    shards = "some replicas get none" if batch_rows < num_replicas else "shards differ by a row"
    return Finding(
        "batch-uneven",
        "error",
        what=f"The data holds a batch of {batch_rows} rows, which {num_replicas} replicas do "
        f"not divide: {shards}.",
        why="Keras averages over replicas whatever their rows, so these rows would weigh more, "
        "and its own first step stops on such a batch.",
        fix="Feed the model through ktk.replicate(model), which weighs each row alike, or batch "
        "with drop_remainder=True.",
    )


def check_epoch_rows(rows: int, steps: int, num_replicas: int) -> Finding | None:
    """Returns a finding where the rows of an epoch show that a replica went short.

    Sees the sum of an epoch only, so that uneven batches that add up evenly go unnoticed;
    `check_ragged_batch` is for a batch whose size is known.

    Args:
        rows: Rows that the epoch consumed over all replicas.
        steps: Steps that it ran.
        num_replicas: Replicas in sync.

    Example:

    >>> print(check_epoch_rows(37, 2, 4).what)
    The epoch consumed 37 rows in 2 steps, which 4 replicas do not divide.
    >>> check_epoch_rows(40, 2, 4) is None
    True
    """
    is_short = rows < steps * num_replicas
    if rows % num_replicas == 0 and not is_short:
        return None
    even = max(rows // num_replicas, steps) * num_replicas
    return Finding(
        "epoch-uneven",
        "error",
        what=f"The epoch consumed {rows} rows in {steps} steps, which {num_replicas} replicas do "
        "not divide.",
        why="In some step a replica had fewer rows than others"
        + (", or none, which turns BatchNormalization non-finite" if is_short else "")
        + "; Keras averages over replicas whatever their rows, so the weights are not those of "
        "one device.",
        fix="Feed the model through ktk.replicate(model), which weighs each row alike, or batch "
        "with drop_remainder=True.",
        cures=({"rows": even},),
    )


def check_first_validation_batch(batch_rows: int, num_replicas: int) -> Finding | None:
    """Returns a finding where stock Keras cannot begin a validation pass.

    Only the first batch counts: later ones may be uneven, and each row counts once.
    A model that went through `ktk.replicate` is not concerned.

    Args:
        batch_rows: Rows of the first validation batch over all replicas.
        num_replicas: Replicas in sync.

    Example:

    >>> check_first_validation_batch(30, 4).cures
    ({'batch_rows': 28}, {'batch_rows': 32})
    """
    if batch_rows % num_replicas == 0:
        return None
    below = batch_rows // num_replicas * num_replicas
    sizes = [size for size in (below, below + num_replicas) if size]
    return Finding(
        "validation-batch-uneven",
        "error",
        what=f"The first validation batch has {batch_rows} rows, which {num_replicas} replicas "
        "do not divide.",
        why="Before each validation pass Keras averages the first batch over the replicas, and "
        "stops there (`AddN must have the same size and shape`).",
        fix="Feed the model through ktk.replicate(model), which evaluates any number of rows, or "
        "use validation data with at least that many rows and validation_batch_size="
        + " or ".join(map(str, sizes))
        + ".",
        cures=tuple({"batch_rows": size} for size in sizes),
    )


def check_tpu_batch(per_replica_batch_size: int) -> Finding | None:
    """Returns advice where a TPU would pad the batch of one core.

    Args:
        per_replica_batch_size: Rows of one step on one TPU core.

    Example:

    >>> print(check_tpu_batch(150).what)
    per_replica_batch_size=150 is padded to 152 on a TPU core.
    >>> check_tpu_batch(128) is None
    True
    """
    padded = -(-per_replica_batch_size // TPU_BATCH_MULTIPLE) * TPU_BATCH_MULTIPLE
    if padded == per_replica_batch_size:
        return None
    below = padded - TPU_BATCH_MULTIPLE
    sizes = [size for size in (below, padded) if size]
    return Finding(
        "tpu-batch-padding",
        "info",
        what=f"per_replica_batch_size={per_replica_batch_size} is padded to {padded} on a TPU "
        "core.",
        why=f"Tiles are {TPU_BATCH_MULTIPLE} x {TPU_BATCH_IDEAL}, and padding is computed like "
        f"data; multiples of {TPU_BATCH_MULTIPLE} waste nothing, multiples of "
        f"{TPU_BATCH_IDEAL} fill the matrix unit.",
        fix="Use per_replica_batch_size="
        + " or ".join(map(str, sizes))
        + " where the data allows it.",
        cures=tuple({"per_replica_batch_size": size} for size in sizes),
    )
