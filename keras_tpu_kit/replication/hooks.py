"""Gives a Keras function a second behaviour that holds only inside a replicated step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras_tpu_kit.replication.share import current_share


def inside_step(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the decorated function stand in for `owner.name` inside a replicated step.

    Everywhere else, in other threads and for other models, Keras's own runs as it is.

    Args:
        owner: The Keras module or class.
        name: The function's name in it. It must exist: an upgrade that moves it shall be told.

    The decorated function receives the `ReplicaShare` and Keras's own function before the
    arguments of the call.
    """
    stock = getattr(owner, name)

    def install(replacement: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(stock)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            share = current_share()
            if share is None:
                return stock(*args, **kwargs)
            return replacement(share, stock, *args, **kwargs)

        setattr(owner, name, dispatch)
        return replacement

    return install
