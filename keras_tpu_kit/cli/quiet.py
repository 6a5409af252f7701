"""Keeps a command's terminal free of what TensorFlow's native code writes when it is loaded."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

_STDERR = 2


def terminal() -> IO[str]:
    """Returns standard error as it is now, to write to while `native_logs_kept` holds it."""
    return os.fdopen(os.dup(_STDERR), "w", encoding="utf-8", errors="replace")


@contextlib.contextmanager
def native_logs_kept() -> Iterator[None]:
    """Keeps what is written to standard error inside, and shows it where something is raised.

    Native code logs to the file descriptor before any level is set, so that neither
    `TF_CPP_MIN_LOG_LEVEL` nor Python's `sys.stderr` can hold it back.
    """
    sys.stderr.flush()
    shown = os.dup(_STDERR)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), _STDERR)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(shown, kept.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(shown, _STDERR)
            os.close(shown)
