"""Rows made up, for asking the user's own code what it makes of a batch and of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from keras import tree

# Of two batches, which differ in size, so that their mean is not that of their rows.
ROWS = (3, 2)
# Where a shape is unknown, any length does.
_LENGTH = 4


def made_up(shape: Any, dtype: Any, random: np.random.RandomState) -> tf.Tensor:
    """Returns a tensor between 0.1 and 0.9, or of zeros and ones where it is no float.

    Args:
        shape: Sizes, `None` where one is unknown.
        dtype: A TensorFlow dtype.
        random: Where the values come from.

    Raises:
        TypeError: If nothing can be made up, as for strings.
    """
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise TypeError(f"nothing is known of its {dtype.name} input")
    values = random.uniform(0.1, 0.9, [_LENGTH if size is None else size for size in shape])
    # Where classes or words are meant, the first two exist.
    return tf.cast(values if dtype.is_floating else np.round(values), dtype)


def two_batches_and_both(like: Any) -> tuple[Any, Any, Any]:
    """Returns a batch of each size in `ROWS`, and one of all their rows, the same every time.

    Args:
        like: Nested arguments of a call. Of tensors with rows, structure, shapes and dtypes are
            used; one float without rows is taken for a mean over rows; what is no tensor stays.

    Raises:
        TypeError: If a tensor cannot be made up.
    """
    random = np.random.RandomState(0)

    def example(part: Any) -> tuple[Any, Any, Any]:
        if not tf.is_tensor(part):
            return part, part, part
        dtype = tf.as_dtype(part.dtype)
        if part.shape.rank:
            first, second = (made_up([rows, *part.shape[1:]], dtype, random) for rows in ROWS)
            return first, second, tf.concat([first, second], axis=0)
        if not dtype.is_floating:
            raise TypeError(f"it is given one {dtype.name} for a batch")
        first, second = (made_up([], dtype, random) for _ in ROWS)
        return first, second, (ROWS[0] * first + ROWS[1] * second) / sum(ROWS)

    leaves = [example(part) for part in tree.flatten(like)]
    first, second, both = (
        tree.pack_sequence_as(like, [each[index] for each in leaves]) for index in range(3)
    )
    return first, second, both


def in_one_line(error: Exception) -> str:
    """Returns what the user's code answered instead, short enough for a message."""
    return f"{type(error).__name__}: " + str(error).strip().partition("\n")[0][:200]
