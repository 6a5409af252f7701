"""How a trial ended and what it took, beside what KerasTuner keeps of it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, get_args

from keras_tpu_kit.tuner.internals import TrialStatus

Outcome = Literal["finished", "pruned", "diverged", "out of memory", "infeasible", "failed"]

# KerasTuner knows three ways to end: a value to learn from, a failure that `max_retries_per_trial`
# may repeat, and one that is not repeated.
_STATUS: dict[Outcome, str] = {
    "finished": TrialStatus.COMPLETED,
    "pruned": TrialStatus.COMPLETED,
    "diverged": TrialStatus.INVALID,
    "out of memory": TrialStatus.FAILED,
    "infeasible": TrialStatus.FAILED,
    "failed": TrialStatus.INVALID,
}


@dataclasses.dataclass(kw_only=True)
class TrialRecord:
    """What a trial came to; it travels and is kept as the text of `trial.message`.

    Args:
        outcome: `"finished"`, or why the trial ended before its time.
        reason: One sentence, empty for a trial that finished.
        began: When it began, in seconds of the Unix clock.
        seconds: Seconds from the trial's beginning to its end.
        epochs: Epochs that it trained, over all of its executions.
        planned_epochs: Epochs that it would have trained, or `None` where nobody knows.
        num_replicas: Replicas in sync that trained it.
        per_replica_batch_size: Rows of one step on one replica, or `None`.
        num_weights: Scalars in the model's weights, or `None` if it was never built.

    Example:

    >>> record = TrialRecord(outcome="pruned", reason="Worse than the median.", epochs=2)
    >>> TrialRecord.from_message(record.to_message()) == record
    True
    """

    outcome: Outcome = "finished"
    reason: str = ""
    began: float = 0.0
    seconds: float = 0.0
    epochs: int = 0
    planned_epochs: int | None = None
    num_replicas: int = 1
    per_replica_batch_size: int | None = None
    num_weights: int | None = None

    @property
    def status(self) -> str:
        """KerasTuner's word for the outcome."""
        return _STATUS[self.outcome]

    @property
    def device_seconds(self) -> float:
        """Seconds of all replicas together."""
        return self.seconds * self.num_replicas

    @property
    def device_seconds_saved(self) -> float:
        """Seconds of all replicas that the epochs left out would have taken."""
        if self.outcome != "pruned" or not self.planned_epochs or not self.epochs:
            return 0.0
        return self.device_seconds * (self.planned_epochs - self.epochs) / self.epochs

    def to_message(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_message(cls, message: str | None) -> TrialRecord | None:
        """Returns the record that `to_message` wrote, or `None` for any other text."""
        if not message or not message.startswith('{"outcome"'):
            return None
        fields: dict[str, Any] = json.loads(message)
        return cls(**fields) if fields["outcome"] in get_args(Outcome) else None


def reason_of(trial: Any) -> str:
    """Returns how a trial ended, in words.

    Args:
        trial: A `keras_tuner` trial.
    """
    record = TrialRecord.from_message(trial.message)
    if record is None:
        return str(trial.message or trial.status.lower()).strip().splitlines()[-1]
    return f"{record.outcome}: {record.reason}" if record.reason else record.outcome
