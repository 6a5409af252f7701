"""Finds the largest batch that fits, with few tries."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

MULTIPLE = 8
_TRIES_BEFORE_HALVING = 5


@dataclasses.dataclass(frozen=True)
class Try:
    """One batch that the compiler was asked about.

    Args:
        rows: Rows on one replica.
        needed_bytes: Memory that the step takes.
        fits: Whether the compiler accepted it.
    """

    rows: int
    needed_bytes: int
    fits: bool


@dataclasses.dataclass(frozen=True)
class LargestBatch:
    """The largest batch that was found to fit.

    Args:
        rows: Rows on one replica, or 0 where not even one row fits.
        refused: The smallest batch that the compiler refused, or `None` where the data holds no
            more rows than fit.
        tries: What was asked, in order.
    """

    rows: int
    refused: int | None
    tries: tuple[Try, ...]

    @property
    def is_proven(self) -> bool:
        """Whether the next multiple of 8 was refused."""
        return self.refused is not None and self.refused - self.rows <= MULTIPLE


def find_largest_batch(
    ask: Callable[[int], Try],
    available_bytes: int,
    first: Try,
    *,
    most_rows: int | None = None,
    most_tries: int = 12,
) -> LargestBatch:
    """Returns the largest multiple of 8 rows that fits, by asking about few.

    Memory grows about linearly with the batch, so that each answer predicts the limit. The
    last two answers prove it: a batch that fits, and the next multiple of 8, that does not.

    Args:
        ask: Compiles for a number of rows.
        available_bytes: Memory of one replica.
        first: A try that was made already.
        most_rows: Rows that the data can fill, or `None`.
        most_tries: Compilations after which to be content with what fits.

    Example:

    >>> def ask(rows):
    ...     return Try(rows, 100 + 7 * rows, 100 + 7 * rows <= 1000)
    >>> found = find_largest_batch(ask, 1000, ask(512))
    >>> found.rows, found.refused, len(found.tries)
    (128, 136, 3)
    """
    tries = [first]
    while True:
        fitting = max((each.rows for each in tries if each.fits), default=0)
        refused = min((each.rows for each in tries if not each.fits), default=None)
        at_limit = most_rows is not None and fitting + MULTIPLE > most_rows
        is_done = at_limit or (refused is not None and refused - fitting <= MULTIPLE)
        if refused is not None and refused <= MULTIPLE:
            return _few_rows(ask, tries, fitting, refused, most_rows)
        if is_done or len(tries) > most_tries:
            return LargestBatch(fitting, refused, tuple(tries))
        tries.append(ask(_next_rows(tries, available_bytes, fitting, refused, most_rows)))


def _next_rows(
    tries: list[Try], available: int, fitting: int, refused: int | None, most_rows: int | None
) -> int:
    """Returns the multiple of 8 to ask about next, strictly between what is known."""
    low = fitting // MULTIPLE * MULTIPLE + MULTIPLE
    if refused is not None and len(tries) > _TRIES_BEFORE_HALVING:
        # The compiler trades time for memory near the limit, where no line predicts it.
        return max(low, (fitting + refused) // 2 // MULTIPLE * MULTIPLE)
    guess = _predicted(tries, available)
    if refused is not None:
        guess = min(guess, (refused - 1) // MULTIPLE * MULTIPLE)
    if most_rows is not None:
        guess = min(guess, most_rows // MULTIPLE * MULTIPLE)
    return max(guess, low)


def _predicted(tries: list[Try], available: int) -> int:
    """Returns the largest multiple of 8 that the line through the two nearest tries allows."""
    nearest = sorted(tries, key=lambda each: abs(each.needed_bytes - available))[:2]
    one = nearest[0]
    if len(nearest) == 2 and nearest[1].rows != one.rows:
        slope = (one.needed_bytes - nearest[1].needed_bytes) / (one.rows - nearest[1].rows)
    else:
        slope = one.needed_bytes / one.rows
    if slope <= 0:
        return one.rows * 2 // MULTIPLE * MULTIPLE
    rows = one.rows + (available - one.needed_bytes) / slope
    return max(MULTIPLE, int(rows) // MULTIPLE * MULTIPLE)


def _few_rows(
    ask: Callable[[int], Try],
    tries: list[Try],
    fitting: int,
    refused: int,
    most_rows: int | None,
) -> LargestBatch:
    """Returns the largest of 4, 2 and 1 rows that fits, or what fits already, where 8 do not."""
    for rows in (4, 2, 1):
        if fitting < rows < refused and (most_rows is None or rows <= most_rows):
            tries.append(ask(rows))
            if tries[-1].fits:
                fitting = rows
            else:
                refused = rows
    return LargestBatch(fitting, refused, tuple(tries))
