"""What Keras calls layers and metrics that nobody named; `tests/ground/` pins where it counts."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator

from keras.src.backend.common import global_state

_COUNTS = "object_name_uids"


def reset_names() -> None:
    """Lets Keras name layers and metrics as if none had been made before.

    `keras.utils.clear_session` does that as well, but forgets the user's dtype policy and
    seed, and makes TensorFlow compile its kernels again.
    """
    global_state.set_global_attribute(_COUNTS, collections.defaultdict(int))


@contextlib.contextmanager
def fresh_names() -> Iterator[None]:
    """Names what is made inside as if nothing had been made before, and goes on counting after."""
    before = global_state.get_global_attribute(_COUNTS)
    reset_names()
    try:
        yield
    finally:
        global_state.set_global_attribute(_COUNTS, before)
