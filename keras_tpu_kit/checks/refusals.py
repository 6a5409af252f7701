"""What TensorFlow and the TPU compiler say when a step cannot run, in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from keras_tpu_kit.errors import Finding

_NODE = re.compile(r"\{\{node ([^}]+)\}\}|node `([^`]+)`")
_TENSOR = re.compile(r"\b([\w.]+(?:/[\w.]+)+)(?::\d+)?")
_OP = re.compile(r"No registered '(\w+)' OpKernel|with op (\w+) must be")
_CALLED = re.compile(r"Exception encountered when calling (\w+)\.call\(\)")
_SIZE = r"([\d.]+)([KMGT]?)"
# The compiler foresees that a step cannot fit, or finds it when it places the last buffers.
_MEMORY = re.compile(rf"\({_SIZE}\) exceeds available HBM \({_SIZE}\)|Used {_SIZE} of {_SIZE} hbm")
_UNIT = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class _Kind(NamedTuple):
    """A family of ops, or of messages, with the reason and the cure that they share."""

    pattern: str
    code: str
    why: str
    fix: str


_OPS = (
    _Kind(
        r"(Eager)?PyFunc\w*|NumpyFunction",
        "python-in-step",
        "A Python function runs on the host's interpreter, and a TPU runs compiled code only.",
        "Write it with keras.ops or tf ops, or move it into the dataset with dataset.map.",
    ),
    _Kind(
        r"\w*(LookupTable|HashTable)\w*",
        "lookup-in-model",
        "A lookup table lives in the host's memory, which a TPU's program cannot reach.",
        "Move the lookup into the dataset: dataset.map(lambda x, y: (lookup(x), y)), and feed the "
        "model its integers.",
    ),
    _Kind(
        r"\w*String\w*|AsString|Print\w*|\w*Regex\w*|Unicode\w*|(En|De)codeBase64|Substr\w*",
        "string-in-step",
        "A TPU has no strings: making, splitting and printing text (tf.print too) has no "
        "counterpart on it.",
        "Remove tf.print and keep text in the dataset: turn it into integers with dataset.map.",
    ),
    _Kind(
        r"Ragged\w*",
        "ragged-in-model",
        "A TPU's arrays have one fixed shape, and rows of several lengths have none.",
        "Pad in the dataset, with .to_tensor(shape=[None, length]) or padded_batch, and mask the "
        "padding in the model.",
    ),
    _Kind(
        r"(De|En)code\w+|ReadFile|WriteFile|Parse\w*|\w*Dataset\w*|Iterator\w*|\w*Summary\w*",
        "host-op-in-step",
        "Files, images and records are read by the host; a TPU has no such op.",
        "Move it into the dataset with dataset.map, and feed the model numbers.",
    ),
    _Kind(
        r"Sparse\w*",
        "sparse-in-model",
        "A TPU has no sparse arrays.",
        "Make it dense in the dataset: dataset.map(...) with tf.sparse.to_dense(...).",
    ),
)

_OTHER_OP = _Kind(
    r".*",
    "unsupported-op",
    "TensorFlow's bridge to XLA, which is the way to every TPU, has no counterpart of it.",
    "Replace it with ops that XLA knows (most of keras.ops), or move it into the dataset with "
    "dataset.map.",
)

_TRACES = (
    _Kind(
        r"to a numpy array|numpy\(\)|'numpy'|__array__",
        "numpy-in-step",
        "NumPy computes at once in Python, and the step is compiled once before any value is "
        "there.",
        "Use keras.ops (or tf) in place of numpy there: keras.ops.mean, keras.ops.square.",
    ),
    _Kind(
        r"as a Python `?bool`?|not 'SymbolicTensor'|Iterating over a symbolic|__index__|"
        r"interpreted as an integer|must be a (string or a )?real number",
        "python-value-in-step",
        "A Python number or bool is asked of a value that is known only while the step runs.",
        "Keep it a tensor: keras.ops.where or keras.ops.cond for a choice, keras.ops.maximum for a "
        "bound, and no float() or int().",
    ),
)

_SHAPES = _Kind(
    r"must be a compile-time constant",
    "shape-depends-on-data",
    "A TPU's program has fixed shapes, and here a length is computed from the data.",
    "Compute over the full length and mask: keras.ops.where(keep, x, 0), tf.sequence_mask(lengths, "
    "maxlen=...) with a constant maxlen; give tf.while_loop a constant maximum_iterations.",
)

_LOOP = _Kind(
    r"fixed tensor list size|with op TensorList",
    "loop-of-unknown-length",
    "The gradient of a loop keeps every turn's values, and the number of turns depends on data, "
    "so that their memory has no fixed size.",
    "Give the loop a constant bound: tf.while_loop(..., maximum_iterations=100), or "
    "keras.ops.fori_loop.",
)


def memory_figures(message: str) -> tuple[int, int] | None:
    """Returns the bytes that a step needs and those there are, of a refusal for lack of memory.

    Example:

    >>> memory_figures("temporaries (20.86G) exceeds available HBM (7.48G).")
    (22398254448, 8031588843)
    >>> memory_figures("Used 7.5G of 7.25G hbm. Exceeded hbm capacity by 256.0M.")
    (8053063680, 7784628224)
    """
    match = _MEMORY.search(message)
    if match is None:
        return None
    figure, unit, limit, limit_unit = (part for part in match.groups() if part is not None)
    return int(float(figure) * _UNIT[unit]), int(float(limit) * _UNIT[limit_unit])


def gigabytes(num_bytes: float) -> str:
    """Returns bytes as the compiler writes them, in units of 1,024.

    Example:

    >>> gigabytes(8031588843), gigabytes(2_000_000)
    ('7.48 GiB', '1.9 MiB')
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if num_bytes >= size:
            return f"{num_bytes / size:.{2 if unit == 'GiB' else 1}f} {unit}"
    return f"{num_bytes:.0f} bytes"


def step_exceeds_memory(needed: int, available: int) -> Finding:
    """Returns the finding for a step that does not fit into one replica's memory.

    Args:
        needed: Bytes, as the compiler says.
        available: Bytes, as the compiler says.

    Example:

    >>> print(step_exceeds_memory(22398254448, 8031588843).what)
    The step needs 20.86 GiB of a replica's memory, and 7.48 GiB are there.
    """
    return Finding(
        "step-exceeds-memory",
        "error",
        what=f"The step needs {gigabytes(needed)} of a replica's memory, and "
        f"{gigabytes(available)} are there.",
        why="The TPU compiler places every array of the step before it runs, and refuses what "
        "does not fit.",
        fix="Use a smaller batch per replica, mixed_bfloat16, an optimizer with fewer slots, or a "
        "TPU type with more memory.",
    )


def text_in_batch(column: str, reader: str | None) -> Finding:
    """Returns the finding for a column of text that a step is called with.

    Args:
        column: As users spell it.
        reader: What reads it, such as `"layer 'decoded'"`, or `None` where nothing does.

    Example:

    >>> print(text_in_batch("x", "layer 'decoded'").what)
    x holds text or bytes, and layer 'decoded' reads it in the step.
    """
    return Finding(
        "text-in-batch",
        "error",
        what=f"{column} holds text or bytes, and {reader or 'nothing'} reads it in the step.",
        why="A TPU has no strings: they can neither be sent to it nor be read on it.",
        fix="Turn them into numbers in the dataset, with dataset.map and a StringLookup, "
        "tf.io.decode_jpeg or the like, and feed the model those; leave out a column that nothing "
        "reads.",
    )


def layer_of(message: str, layer_names: Iterable[str]) -> str | None:
    """Returns the layer, or else the part of the step, that a message names, or `None`.

    TensorFlow names an op by the layers around it: `model_1/words_2/LookupTableFindV2`. The
    innermost layer counts. Keras enters a layer's scope twice, to build it and to call it, so
    that TensorFlow numbers each call: `dense_1` is a call of `dense`, even where another layer
    is named so.

    Args:
        message: What TensorFlow or the compiler said.
        layer_names: The model's layers.

    Example:

    >>> layer_of("compatible with node {{node model_1/words_2/Find}}", ["words", "dense"])
    "layer 'words'"
    >>> layer_of("symbolic tf.Tensor (compile_loss/loss/sub:0)", [])
    'the loss'
    """
    names = set(layer_names)
    paths = [first or second for first, second in _NODE.findall(message)]
    for path in paths or _TENSOR.findall(message):
        parts = path.split("/")
        for part in reversed(parts):
            for name in (re.sub(r"_\d+$", "", part), part):
                if name in names:
                    return f"layer {name!r}"
        for prefix, part in (("compile_loss", "the loss"), ("compile_metrics", "a metric")):
            if any(each.startswith(prefix) for each in parts):
                return part
    return None


def called_class(message: str) -> str | None:
    """Returns the class of the layer in whose call an error arose, as Keras says, or `None`.

    Example:

    >>> called_class("ValueError: Exception encountered when calling Noisy.call().")
    'Noisy'
    """
    match = _CALLED.search(message)
    return match[1] if match else None


def headline(message: str) -> str:
    """Returns the first line of a message that says something.

    Example:

    >>> headline("ValueError: Exception encountered when calling Sequential.call().\\n\\nOf rank 3")
    'ValueError: Of rank 3'
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if len(lines) > 1 and _CALLED.search(lines[0]):
        return lines[0].partition(": ")[0] + ": " + lines[1]
    return lines[0] if lines else "no message"


def op_of(message: str) -> str | None:
    """Returns the type of the TensorFlow op that a message refuses, or `None`.

    Example:

    >>> op_of("EagerPyFunc (No registered 'EagerPyFunc' OpKernel for XLA_CPU_JIT devices")
    'EagerPyFunc'
    """
    match = _OP.search(message)
    return (match[1] or match[2]) if match else None


def explain_refusal(
    stage: str, message: str, *, layer: str | None = None, where: str | None = None
) -> Finding:
    """Returns what a refusal means, and what to use instead.

    Args:
        stage: `"trace"`, `"bridge"` or `"compiler"`.
        message: What TensorFlow or the compiler said.
        layer: What it speaks of, such as `"layer 'words'"`, or `None`.
        where: A place in the user's code, or `None`.

    Example:

    >>> finding = explain_refusal(
    ...     "bridge", "No registered 'EagerPyFunc' OpKernel for XLA", layer="layer 'scale'")
    >>> print(finding.what)
    A TPU cannot run the op EagerPyFunc in layer 'scale'.
    >>> finding.code
    'python-in-step'
    """
    place = layer or "the step"
    at = f" ({where})" if where else ""
    first = headline(message)
    if stage == "trace":
        for kind in _TRACES:
            if re.search(kind.pattern, message):
                return Finding(
                    kind.code,
                    "error",
                    what=f"TensorFlow cannot trace {place}{at}: {_shortened(first)}",
                    why=kind.why,
                    fix=kind.fix,
                )
        return Finding(
            "step-not-traced",
            "error",
            what=f"TensorFlow cannot trace {place}{at}: {_shortened(first)}",
            why="The step has to become a graph before it can be compiled for anything.",
            fix="Run model.train_on_batch on one batch of your data: it shows the whole traceback.",
        )
    op = op_of(message)
    if re.search(_LOOP.pattern, message):
        what = f"The number of turns of a loop in {place} depends on the data."
        return Finding(_LOOP.code, "error", what=what, why=_LOOP.why, fix=_LOOP.fix)
    if re.search(_SHAPES.pattern, message):
        named = f" of the op {op}" if op else ""
        what = f"A shape{named} in {place} depends on the data."
        return Finding(_SHAPES.code, "error", what=what, why=_SHAPES.why, fix=_SHAPES.fix)
    if op is not None:
        kind = next((each for each in _OPS if re.fullmatch(each.pattern, op)), _OTHER_OP)
        what = f"A TPU cannot run the op {op} in {place}."
        return Finding(kind.code, "error", what=what, why=kind.why, fix=kind.fix)
    who = "TensorFlow's bridge" if stage == "bridge" else "The TPU compiler"
    return Finding(
        "step-not-compiled",
        "error",
        what=f"{who} refused {place}: {_shortened(first)}",
        why="What it cannot translate cannot run on a TPU.",
        fix="Read the original message in the report, and leave layers out one by one to find the "
        "one it means.",
    )


def _shortened(text: str, most: int = 240) -> str:
    return text if len(text) <= most else text[:most] + " ..."
