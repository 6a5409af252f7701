"""The base of callbacks that look at what an epoch consumed, without slowing it down."""

from __future__ import annotations

import warnings
from typing import Any, Literal, get_args

import keras

from keras_tpu_kit.callbacks.consumption import (
    Consumed,
    metric_resets,
    rows_seen,
    steps_run,
    updates_seen,
)
from keras_tpu_kit.errors import Finding, KitError, PlanError
from keras_tpu_kit.replication.resuming import replayed_steps

OnProblem = Literal["raise", "warn"]


class EpochObserver(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types.
    """Calls `on_epoch_consumed(epoch, consumed, logs)` with what the epoch really took.

    Values are read from the device once an epoch; the batch hook only counts. Subclasses hold
    values, never a strategy, a dataset or a model, so that they can be copied.
    """

    # Keras calls batch-end hooks from a helper thread as long as all of them are safe there, and
    # the training thread waits for the device at every batch if one is not.
    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self._ended: list[int] = []
        self._rows: int | None = None
        self._updates_before: int | None = None
        self._replayed_steps = 0
        self._resets = 0
        self._in_epoch = False

    @property
    def num_replicas(self) -> int:
        """Replicas in sync that train the model."""
        return int(self.model.distribute_strategy.num_replicas_in_sync)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes where the epoch starts."""
        self._ended = []
        self._rows = None
        self._updates_before = updates_seen(self.model)
        self._replayed_steps = replayed_steps(self.model)
        self._resets = metric_resets(self.model)
        self._in_epoch = True

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts an execution; appending is safe from any thread."""
        self._ended.append(batch)

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Reads the rows before validation resets their count."""
        self._read_rows()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Hands what the epoch consumed to `on_epoch_consumed`."""
        self._read_rows()
        updates = updates_seen(self.model)
        if updates is not None and self._updates_before is not None:
            updates += self._replayed_steps - self._updates_before
        executions = len(self._ended)
        consumed = Consumed(
            executions=executions,
            steps=steps_run(executions, int(self.model.steps_per_execution), updates),
            rows=self._rows,
            was_stopped=bool(self.model.stop_training),
        )
        self.on_epoch_consumed(epoch, consumed, {} if logs is None else logs)

    def on_epoch_consumed(self, epoch: int, consumed: Consumed, logs: dict[str, Any]) -> None:
        """Is called at the end of each epoch; `logs` may be written to."""

    def _read_rows(self) -> None:
        if self._in_epoch:
            was_reset = metric_resets(self.model) != self._resets
            self._rows = None if was_reset else rows_seen(self.model)
            self._in_epoch = False


def checked_on_problem(on_problem: str) -> OnProblem:
    """Returns `on_problem`, or raises where it is unknown.

    Raises:
        PlanError: If it is neither `"raise"` nor `"warn"`.
    """
    if on_problem not in get_args(OnProblem):
        raise PlanError(
            Finding(
                "unknown-on-problem",
                "error",
                what=f"on_problem={on_problem!r} is not known.",
                why="It says what happens when training is not as it was planned.",
                fix='Use on_problem="raise" or on_problem="warn".',
                cures=({"on_problem": "raise"}, {"on_problem": "warn"}),
            )
        )
    return on_problem  # type: ignore[return-value]


def report_problem(
    finding: Finding | None, error: type[KitError], on_problem: OnProblem, stacklevel: int = 3
) -> None:
    """Raises or warns about a finding, as the user wished; one that is no error only warns.

    Args:
        finding: What was found, or `None`.
        error: The class to raise.
        on_problem: `"raise"` or `"warn"`.
        stacklevel: Frames between the warning and the user's line.
    """
    if finding is None:
        return
    if finding.severity == "error" and on_problem == "raise":
        raise error(finding)
    warnings.warn(str(finding), stacklevel=stacklevel)
