"""Rules on what a TPU runs well, said on plain facts about a program and its data."""

from __future__ import annotations

import math
from collections.abc import Sequence

from keras_tpu_kit.checks.refusals import gigabytes
from keras_tpu_kit.errors import Finding

# Source: Cloud TPU performance guide, https://cloud.google.com/tpu/docs/performance-guide: arrays
# are padded to tiles of 8 x 128.
SUBLANES, LANES = 8, 128
# Below these nobody gains by changing a layer; a product counts as large from four tiles' work.
LARGE_PRODUCT = 4 * LANES * LANES
PADDING_WORTH_SAYING = 0.5
FLOPS_WORTH_SAYING = 0.05
_SHORTEST_STEP = 1e-4
# The last TensorFlow with a release for TPUs. Source: the requirements of Keras itself.
LAST_TPU_TENSORFLOW = "2.19.1"


def padding_waste(rows: int, depth: int, columns: int) -> float:
    """Returns the share of a matrix unit's work, 0 to 1, that a product spends on padding.

    The two axes that lie along the unit are filled up to 128 and the third to 8; whichever of
    rows and columns costs less is taken for the third, so that this is the least it can be.

    Args:
        rows: Rows of the left matrix.
        depth: Axis that is summed over.
        columns: Columns of the right matrix.

    Example:

    >>> padding_waste(128, 784, 128), padding_waste(128, 128, 10)
    (0.125, 0.375)
    """

    def filled(size: int, multiple: int) -> int:
        return -(-size // multiple) * multiple

    work = min(
        filled(rows, SUBLANES) * filled(columns, LANES),
        filled(rows, LANES) * filled(columns, SUBLANES),
    ) * filled(depth, LANES)
    return 1 - rows * depth * columns / work


def check_padding(
    layer: str, rows: int, depth: int, columns: int, flops_share: float
) -> Finding | None:
    """Returns advice where a large product spends most of its work on padding.

    Args:
        layer: What makes the product, such as `"layer 'dense'"`.
        rows: Rows of the left matrix.
        depth: Axis that is summed over.
        columns: Columns of the right matrix.
        flops_share: Its share of the step's operations, 0 to 1.

    Example:

    >>> print(check_padding("layer 'narrow'", 512, 16, 16, 0.4).what)
    The product 512 x 16 x 16 of layer 'narrow' spends 88 % of its work on padding.
    >>> check_padding("layer 'wide'", 128, 128, 128, 1.0) is None
    True
    """
    waste = padding_waste(rows, depth, columns)
    is_large = rows * depth * columns >= LARGE_PRODUCT
    if not is_large or waste < PADDING_WORTH_SAYING or flops_share < FLOPS_WORTH_SAYING:
        return None
    sizes = [size for size in (depth, columns) if size % LANES]
    return Finding(
        "tpu-padding",
        "info",
        what=f"The product {rows} x {depth} x {columns} of {layer} spends {waste:.0%}".replace(
            "%", " %"
        )
        + " of its work on padding.",
        why=f"A TPU computes in tiles of {SUBLANES} x {LANES}, and padding is computed like data.",
        fix="Where the task leaves you free, use "
        + (
            " and ".join(f"{-(-size // LANES) * LANES} in place of {size}" for size in sizes)
            or f"a batch that is a multiple of {LANES}"
        )
        + " features: it costs little more time.",
        cures=({"rows": LANES, "depth": LANES, "columns": LANES},),
    )


def check_float64(layers: Sequence[str]) -> Finding | None:
    """Returns a warning where a program computes in float64.

    Args:
        layers: What computes in it, as users would name it.

    Example:

    >>> check_float64(["layer 'wide'"]).code
    'float64-emulated'
    """
    if not layers:
        return None
    return Finding(
        "float64-emulated",
        "warning",
        what=f"float64 is computed in {_some(layers)}.",
        why="A TPU has no float64 unit: the compiler makes each operation of many float32 ones, "
        "and each array takes twice the memory.",
        fix='Use dtype="float32" there, and cast the data with dataset.map.',
        cures=({"layers": []},),
    )


def check_dynamic_shapes(layers: Sequence[str]) -> Finding | None:
    """Returns a note where the length of a result depends on the data.

    Args:
        layers: What makes such results, as users would name it.

    Example:

    >>> check_dynamic_shapes(["layer 'keeps_positive'"]).severity
    'info'
    """
    if not layers:
        return None
    return Finding(
        "dynamic-shape",
        "info",
        what=f"The length of a result depends on the data in {_some(layers)}.",
        why="The compiler accepts it by computing over the longest length there can be, and "
        "carrying the real one along.",
        fix="Compute over the full length and mask, such as keras.ops.where(keep, x, 0), which "
        "costs the same and fuses better.",
        cures=({"layers": []},),
    )


def check_matrix_dtype(float32_share: float) -> Finding | None:
    """Returns a note where matrix products read float32.

    Args:
        float32_share: Share of the step's matrix operations, 0 to 1, that do.

    Example:

    >>> check_matrix_dtype(1.0).code
    'float32-products'
    """
    if float32_share < 0.5:
        return None
    return Finding(
        "float32-products",
        "info",
        what=f"{float32_share:.0%} of the matrix operations read float32.".replace("%", " %"),
        why="The matrix unit multiplies in bfloat16 in any case, so float32 buys range in between "
        "at twice the memory and traffic.",
        fix='Try precision="mixed_bfloat16" (ModelFactory), or '
        'keras.config.set_dtype_policy("mixed_bfloat16") before building.',
        cures=({"float32_share": 0.0},),
    )


def check_static_shape(column: str, shape: Sequence[int | None]) -> Finding | None:
    """Returns a finding where an axis of the data is of open length.

    Args:
        column: As users spell it, such as `"x"`.
        shape: Its axes, the batch axis first; `None` for open.

    Example:

    >>> print(check_static_shape("x", (128, None, 16)).what)
    Axis 1 of x has no fixed length: (128, None, 16).
    >>> check_static_shape("y", (None,)).fix
    'Call .batch(size, drop_remainder=True), or pass the data to ktk.make_dataset(data, plan).'
    """
    if None not in shape:
        return None
    axis = list(shape).index(None)
    fix = (
        "Call .batch(size, drop_remainder=True), or pass the data to ktk.make_dataset(data, plan)."
        if axis == 0
        else "Pad to one length in the dataset: .padded_batch(size, padded_shapes=..., "
        "drop_remainder=True), give keras.Input that length, and mask the padding in the model."
    )
    return Finding(
        "shape-not-static",
        "error",
        what=f"Axis {axis} of {column} has no fixed length: {tuple(shape)}.",
        why="A TPU's program has fixed shapes; each other length would be another program.",
        fix=fix,
        cures=({"shape": tuple(128 if axis is None else axis for axis in shape)},),
    )


def check_input_rate(delivered: float, consumed: float, step_seconds: float) -> Finding | None:
    """Returns a warning where a dataset delivers fewer rows than the slice would consume.

    Args:
        delivered: Rows per second that the dataset delivered, measured on this machine.
        consumed: Rows per second that the slice would consume, as estimated.
        step_seconds: Seconds of one step, as estimated. Of steps below 0.1 ms a roofline does
            not tell the pace: starting them takes longer.

    Example:

    >>> print(check_input_rate(10_000, 80_000, 0.02).what)
    The dataset delivers 10,000 rows a second here, and the slice would consume 80,000.
    >>> check_input_rate(90_000, 80_000, 0.02) is None
    True
    """
    if delivered >= consumed or not math.isfinite(consumed) or step_seconds < _SHORTEST_STEP:
        return None
    return Finding(
        "input-bound",
        "warning",
        what=f"The dataset delivers {delivered:,.0f} rows a second here, and the slice would "
        f"consume {consumed:,.0f}.",
        why=f"The TPU would wait about {1 - delivered / consumed:.0%}".replace("%", " %")
        + " of the time (measured on this machine; the TPU's host may be faster).",
        fix="Cache what is read, decode once and not each epoch, map with "
        "num_parallel_calls=tf.data.AUTOTUNE, batch before map, and end in prefetch.",
        cures=({"delivered": consumed},),
    )


def check_finite(column: str, rows_bad: int, rows_seen: int) -> Finding | None:
    """Returns a finding where drawn rows hold NaN or infinity.

    Example:

    >>> check_finite("x", 3, 256).code
    'data-not-finite'
    """
    if not rows_bad:
        return None
    return Finding(
        "data-not-finite",
        "error",
        what=f"{rows_bad} of {rows_seen} drawn rows of {column} hold NaN or infinity.",
        why="One such row makes the loss and then every weight NaN.",
        fix="Replace or drop them in the dataset: dataset.filter(...), or np.nan_to_num.",
        cures=({"rows_bad": 0},),
    )


def check_labels(lowest: int, highest: int, classes: int) -> Finding | None:
    """Returns a finding where integer labels do not name one of the classes.

    Args:
        lowest: Smallest label drawn.
        highest: Largest label drawn.
        classes: Outputs of the model.

    Example:

    >>> print(check_labels(1, 10, 10).what)
    The labels drawn run from 1 to 10, and the model has 10 outputs.
    """
    if lowest >= 0 and highest < classes:
        return None
    return Finding(
        "labels-out-of-range",
        "error",
        what=f"The labels drawn run from {lowest} to {highest}, and the model has {classes} "
        "outputs.",
        why="Sparse losses read label i as output i, counted from 0; a TPU does not check, and "
        "the loss turns NaN.",
        fix=f"Use labels from 0 to {classes - 1}"
        + (f", or {highest + 1} outputs." if highest >= classes else "; ")
        + ("" if highest >= classes else "a loss may leave one out: ignore_class=-1."),
        cures=({"classes": highest + 1},) if lowest >= 0 else (),
    )


def check_remote_files(paths: Sequence[str], is_remote: bool) -> Finding | None:
    """Returns a finding where a remote TPU's host would read this machine's files.

    Args:
        paths: Local paths that the dataset or a callback names.
        is_remote: Whether the TPU is reached over the network (a named TPU, or `grpc://`).

    Example:

    >>> check_remote_files(["/data/train.tfrecord"], True).code
    'local-files'
    """
    if not paths or not is_remote:
        return None
    return Finding(
        "local-files",
        "error",
        what=f"{_some([repr(path) for path in paths])} is on this machine, and the TPU is not.",
        why="A remote TPU's host reads and writes files itself, and stops with `File system "
        "scheme '[local]' not implemented`.",
        fix="Put them in a bucket (gs://...), load the data into memory, or use a TPU VM.",
        cures=({"is_remote": False}, {"paths": []}),
    )


def check_remote_python(uses_python: bool, is_remote: bool) -> Finding | None:
    """Returns a finding where a remote TPU's host would have to run this machine's Python.

    Args:
        uses_python: Whether the dataset calls Python: a generator, `tf.py_function`.
        is_remote: Whether the TPU is reached over the network.

    Example:

    >>> check_remote_python(True, True).code
    'python-in-dataset'
    """
    if not uses_python or not is_remote:
        return None
    return Finding(
        "python-in-dataset",
        "error",
        what="The dataset calls Python, and the TPU is on another machine.",
        why="A remote TPU's host runs the dataset itself and has no interpreter for it.",
        fix="Write the dataset with tf ops, load the data into memory, or use a TPU VM.",
        cures=({"is_remote": False}, {"uses_python": False}),
    )


def check_batch_hooks(callbacks: Sequence[str]) -> Finding | None:
    """Returns a warning where callbacks make every batch wait for the device.

    Args:
        callbacks: Those that act on each batch without `async_safe = True`.

    Example:

    >>> check_batch_hooks(["Logger"]).code
    'callback-stops-device'
    """
    if not callbacks:
        return None
    return Finding(
        "callback-stops-device",
        "warning",
        what=f"{_some(callbacks)} acts on every batch.",
        why="Keras turns the logs into numbers for it in the training thread, which waits for the "
        "TPU at each execution.",
        fix="Act in on_epoch_end, or set async_safe = True on the callback where it does not read "
        "logs.",
        cures=({"callbacks": []},),
    )


def check_tensorflow_for_tpu(wheels: Sequence[tuple[str, str]]) -> Finding | None:
    """Returns a note or a finding on whether these wheels can train on a TPU.

    Args:
        wheels: Name and version of each wheel that provides `tensorflow`.

    Example:

    >>> check_tensorflow_for_tpu([("tensorflow", "2.21.0")]).severity
    'info'
    >>> check_tensorflow_for_tpu([("tensorflow-tpu", "2.19.1")]) is None
    True
    """
    told = ", ".join(f"{name} {version}" for name, version in wheels)
    if len(wheels) > 1:
        return Finding(
            "tensorflow-twice",
            "error",
            what=f"Several wheels provide the module tensorflow: {told}.",
            why="They overwrite each other's files, and the TPU's kernels are gone.",
            fix="pip uninstall -y "
            + " ".join(name for name, _ in wheels)
            + f' && pip install "tensorflow-tpu=={LAST_TPU_TENSORFLOW}"',
            cures=({"wheels": [("tensorflow-tpu", LAST_TPU_TENSORFLOW)]},),
        )
    if not wheels or wheels[0][0] == "tensorflow-tpu":
        return None
    return Finding(
        "tensorflow-not-for-tpu",
        "info",
        what=f"This environment holds {told}, which has no TPU kernels.",
        why="Preflight does not need them, training on a TPU does.",
        fix=f'On the TPU VM: pip install "tensorflow-tpu=={LAST_TPU_TENSORFLOW}" in an environment '
        "of its own (Python 3.12 or older).",
        cures=({"wheels": [("tensorflow-tpu", LAST_TPU_TENSORFLOW)]},),
    )


def check_price(name: str, price: float, rows: Sequence[str], has_row: bool) -> Finding | None:
    """Returns a finding where the price of an hour goes into no row, or is none.

    Args:
        name: TPU type.
        price: Of one hour.
        rows: TPU types that are compared, or none.
        has_row: Whether the type is one of them, under whatever name.

    Example:

    >>> print(check_price("v2-32", 8.0, ["v2-8", "v3-8"], False).fix)
    Give the price of one of v2-8, v3-8.
    """
    if price < 0 or not math.isfinite(price):
        return Finding(
            "price-unreadable",
            "error",
            what=f"{price} is no price of an hour of {name}.",
            why="The cost of an epoch is its hours times the price.",
            fix="Give a number from 0: --price v3-8=8.0 .",
            cures=({"price": 8.0},),
        )
    if has_row:
        return None
    return Finding(
        "price-unused",
        "error",
        what=f"The price of {name} would go into no row.",
        why="Costs stand in the comparison of TPU types.",
        fix=f"Give the price of one of {', '.join(rows)}." if rows else "Ask for --tpu all .",
        cures=({"has_row": True},),
    )


def check_prices(priced: Sequence[str], num_samples: int | None) -> Finding | None:
    """Returns a finding where the cost of an epoch is asked for and its rows are not known.

    Args:
        priced: TPU types that a price was given for.
        num_samples: Rows of an epoch, or `None`.

    Example:

    >>> check_prices(["v3-8"], None).code
    'cost-needs-rows'
    >>> check_prices(["v3-8"], 60_000) is None
    True
    """
    if not priced or num_samples is not None:
        return None
    return Finding(
        "cost-needs-rows",
        "warning",
        what=f"A price is given for {', '.join(priced)}, and no number of training rows.",
        why="The cost of an epoch is its rows over the rows per second, times the price.",
        fix="Add --samples 60000 (num_samples=60_000), or pass the data.",
        cures=({"num_samples": 60_000},),
    )


def largest_batch(per_replica: int, refused: int | None, num_replicas: int) -> Finding:
    """Returns the note that names the largest batch that was found to fit.

    Args:
        per_replica: Rows on one replica that the compiler accepts.
        refused: The smallest size that it refuses, or `None` where none was tried.
        num_replicas: Replicas in sync.

    Example:

    >>> print(largest_batch(176, 184, 8).what)
    The largest batch that fits is 176 rows on each of 8 replicas, 1408 in all.
    """
    proof = f"{refused} is refused" if refused else "no larger one was tried"
    if refused and refused - per_replica > SUBLANES:
        proof += "; what lies between was not tried"
    return Finding(
        "largest-batch",
        "info",
        what=f"The largest batch that fits is {per_replica} rows on each of {num_replicas} "
        f"replicas, {per_replica * num_replicas} in all.",
        why=f"The TPU compiler accepts it, and {proof}.",
        fix=f"Use per_replica_batch_size={per_replica} or less.",
    )


def nothing_fits(needed: int, available: int, tpu: str) -> Finding:
    """Returns the finding for a model of which not even one row fits.

    Args:
        needed: Bytes that one row needs.
        available: Bytes that one replica has.
        tpu: TPU type.

    Example:

    >>> nothing_fits(9 * 2**30, 8 * 2**30, "v2-8").code
    'model-exceeds-replica'
    """
    return Finding(
        "model-exceeds-replica",
        "error",
        what=f"Not even one row fits: the step needs {gigabytes(needed)}, and a replica of {tpu} "
        f"has {gigabytes(available)}.",
        why="Data parallelism holds all weights and the optimizer's state on every replica.",
        fix="Use a type with more memory (v5p-8), an optimizer with fewer slots (SGD), "
        "a smaller embedding; or model parallelism, which this kit does not do: "
        "keras.distribution.ModelParallel on Keras's JAX backend "
        "(https://keras.io/api/distribution/).",
    )


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
