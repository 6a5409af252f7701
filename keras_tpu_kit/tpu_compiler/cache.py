"""Keeps the compiler's answers on disk, named by what was compiled."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import tempfile
from typing import Any

# Rises whenever an answer is written differently or means something else.
FORMAT = 1


def cache_folder() -> pathlib.Path:
    """Returns where answers are kept.

    `KERAS_TPU_KIT_CACHE`, or `keras_tpu_kit` in `XDG_CACHE_HOME` or `~/.cache`.
    """
    named = os.environ.get("KERAS_TPU_KIT_CACHE")
    if named:
        return pathlib.Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path("~/.cache").expanduser()
    return pathlib.Path(home) / "keras_tpu_kit" / "tpu_compiler"


def key_of(*parts: Any) -> str:
    """Returns a name for a content: equal parts give equal names.

    Example:

    >>> key_of("hlo", {"tpu": "v3-8"}) == key_of("hlo", {"tpu": "v3-8"}) != key_of("other")
    True
    """
    text = json.dumps([FORMAT, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read(key: str) -> dict[str, Any] | None:
    """Returns the answer of a key, or `None`; what cannot be read counts as not there."""
    try:
        answer = json.loads((cache_folder() / f"{key}.json").read_text())
    except (OSError, ValueError):
        return None
    is_ours = isinstance(answer, dict) and answer.pop("key", None) == key
    return answer if is_ours else None


def write(key: str, answer: dict[str, Any]) -> None:
    """Keeps an answer, whole or not at all; a disk that is full or read-only keeps nothing."""
    folder = cache_folder()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own, since several processes may keep the same answer at once.
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".part", delete=False) as part:
            part.write(json.dumps({**answer, "key": key}))
        pathlib.Path(part.name).replace(folder / f"{key}.json")
