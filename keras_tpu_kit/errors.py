"""What the kit says when something is wrong, and what it raises.

```
KitError                                 carries .finding
+ PlanError       (also ValueError)      the numbers cannot work
+ HardwareError   (also RuntimeError)    the requested hardware is not there
+ BackendError    (also ImportError)     TensorFlow, or Keras on TensorFlow, is not there
+ FactoryError    (also TypeError)       a ModelFactory hook broke its contract
+ DataError       (also ValueError)      the data cannot be fed to this plan or strategy
+ ReplicationError(also RuntimeError)    this model cannot be trained right on several replicas
+ PreflightError  (also RuntimeError)    a report holds findings of severity "error"
+ SearchError     (also RuntimeError)    a search cannot go on, or ended with no finished trial
```
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, get_args

Severity = Literal["error", "warning", "info"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong, costly or worth knowing, with its reason and its cure.

    The same object is raised, warned, listed in a report or printed as JSON.

    Args:
        code: Short kebab-case name. Each code has a heading in `docs/errors.md`.
        severity: `"error"` (training would fail or be wrong), `"warning"` (training is
            right but wasteful or surprising) or `"info"` (worth knowing).
        what: One full sentence: what was found, with the values as they were passed.
        why: One full sentence: the reason it matters.
        fix: One full sentence: what to do, with numbers to paste.
        cures: Argument values that mend it, as alternatives: each mapping, merged into the
            arguments of the check that returned this finding, makes that check return `None`.

    Raises:
        ValueError: If a text is empty or the severity is unknown.

    Example:

    >>> finding = Finding(
    ...     "steps-not-divisible", "error",
    ...     what="steps_per_epoch=8 is not a multiple of steps_per_execution=3.",
    ...     why="Keras finishes an execution that the data does not end, so ...",
    ...     fix="Use steps_per_epoch=6 or steps_per_epoch=9.")
    >>> print(finding)
    steps_per_epoch=8 is not a multiple of steps_per_execution=3.
      Why: Keras finishes an execution that the data does not end, so ...
      Fix: Use steps_per_epoch=6 or steps_per_epoch=9.  [steps-not-divisible]
    """

    code: str
    severity: Severity
    what: str
    why: str
    fix: str
    cures: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.severity not in get_args(Severity):
            raise ValueError(
                f"severity={self.severity!r} is unknown; use one of {get_args(Severity)}."
            )
        for name in ("code", "what", "why", "fix"):
            if not getattr(self, name).strip():
                raise ValueError(f"A Finding without a {name!r} helps nobody; say it.")

    def __str__(self) -> str:
        return f"{self.what}\n  Why: {self.why}\n  Fix: {self.fix}  [{self.code}]"

    def to_dict(self) -> dict[str, Any]:
        """Returns the finding as a dict of JSON types."""
        return {**dataclasses.asdict(self), "cures": [dict(cure) for cure in self.cures]}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Finding:
        """Returns the finding that `to_dict` wrote."""
        return cls(**{**fields, "cures": tuple(fields.get("cures", ()))})


class KitError(Exception):
    """The base of everything the kit raises on purpose.

    Args:
        finding: The `Finding` that says what, why and fix. It stays readable as `.finding`,
            and the error survives pickling, so that worker processes can send it home.

    Example:

    >>> try:
    ...     raise PlanError(Finding("no-samples", "error", "num_samples=0 is empty.",
    ...                             "There is nothing to train on.", "Pass at least one row."))
    ... except ValueError as error:
    ...     error.finding.code
    'no-samples'
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return str(self.finding)


class PlanError(KitError, ValueError):
    """The numbers cannot work: batch sizes, steps, replicas."""


class HardwareError(KitError, RuntimeError):
    """The requested hardware is not there, or does not answer in time."""


class BackendError(KitError, ImportError):
    """TensorFlow is missing, or Keras runs on another backend."""

    # ImportError's own __init__ keeps `msg`; tracebacks and pickles must show the finding.
    def __reduce__(self) -> tuple[type[BackendError], tuple[Finding]]:
        return type(self), (self.finding,)


class FactoryError(KitError, TypeError):
    """A `ModelFactory` hook broke its contract."""


class DataError(KitError, ValueError):
    """The data cannot be fed to this plan or strategy."""


class ReplicationError(KitError, RuntimeError):
    """This model cannot be trained right on several replicas as it stands."""


class PreflightError(KitError, RuntimeError):
    """A report holds findings of severity "error"."""


class SearchError(KitError, RuntimeError):
    """A search cannot go on, or ended with no finished trial."""


def refuse(error: type[KitError], finding: Finding | None) -> None:
    """Raises `error` if there is a finding.

    Args:
        error: The class to raise it as.
        finding: What a rule of `checks` said, or `None`.
    """
    if finding is not None:
        raise error(finding)
