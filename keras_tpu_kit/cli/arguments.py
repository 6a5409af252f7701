"""Types of arguments that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """Returns what makes an int of an argument and refuses one below `least`.

    Example:

    >>> at_least(1)("3")
    3
    """

    def whole_number(text: str) -> int:
        number = int(text) if text.lstrip("-").isdecimal() else least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text} is no whole number of at least {least}")
        return number

    return whole_number
