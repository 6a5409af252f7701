"""Saves a training that is told to stop, so that it goes on as if it had not been."""

from __future__ import annotations

import logging
import os
from typing import Any

import keras
import tensorflow as tf

from keras_tpu_kit.callbacks.agreement import Agreement
from keras_tpu_kit.callbacks.termination import Termination
from keras_tpu_kit.callbacks.training_state import (
    Position,
    TrainingState,
    build_optimizers,
    metric_values,
)
from keras_tpu_kit.checks import steps
from keras_tpu_kit.errors import PlanError, refuse
from keras_tpu_kit.replication.resuming import InputPosition, start_at, starts_at
from keras_tpu_kit.strategy import describe_strategy

_log = logging.getLogger("keras_tpu_kit")

# EX_TEMPFAIL of sysexits.h: try again later.
EXIT_CODE = 75


class StopOnPreemption(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types.
    """Saves everything and exits when SIGTERM comes, and goes on from there in the next run.

    At the end of the running execution it writes weights, optimizers, metrics, random seeds and
    the position in epoch and input to one file, in one piece, and exits with code 75. A `fit`
    with the same model, data and arguments and a callback of the same directory goes on at the
    next step, in mid-epoch if need be, and ends with the weights of a training that was never
    stopped. When training is done the file is removed.

    The batches that were used are read again and passed over. So the data has to come in the
    same order in each run: `ktk.make_dataset(..., seed=...)`, or data that is not shuffled. A
    dataset that starts at the right place itself needs no reading:
    `ktk.make_dataset(..., seed=1, initial_step=stop.initial_step)` with `skip_input=False`.

    Several workers all stop before the same step, whichever of them is told to; they ask each
    other about once a second. The chief writes, so all must see the directory. What other
    callbacks remember (best values, patience, the history of earlier epochs) is not saved.

    Put it last in the list: behind `BackupAndRestore`, whose state is the older one after a SIGTERM
    (where it is the newer one it wins), and behind what acts when training ends.

    Args:
        directory: Where the state is kept: one training's alone. May be a bucket.
        exit_code: The code that the process exits with.
        skip_input: Whether batches that were used are passed over; `False` where the dataset
            starts at `initial_step` itself.

    Raises:
        KitError: At the start of training, outside of the main thread, where no signal comes.
        PlanError: At the start of training if the saved state is of another model or was cut
            into other steps, or if one of several optimizers is not built.
        SystemExit: In the main thread, when the state is saved.

    Example:

    ```python
    stop = ktk.StopOnPreemption("backup")  # The last of several callbacks.
    model.fit(train, epochs=10, callbacks=[stop], **plan.fit_args())
    ```
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        exit_code: int = EXIT_CODE,
        skip_input: bool = True,
    ) -> None:
        super().__init__()
        self.directory = os.fspath(directory)
        self.exit_code = exit_code
        self.skip_input = skip_input
        self._termination: Termination | None = None
        self._agreement: Agreement | None = None
        self._input: InputPosition | None = None
        self._is_chief = True
        self._epoch = 0
        self._steps_done = 0
        self._metrics: list[Any] | None = None
        self._resumes: TrainingState | None = None

    @property
    def path(self) -> str:
        """The file that holds the state."""
        return f"{self.directory.rstrip('/')}/state.npz"  # A bucket has no pathlib.

    @property
    def initial_epoch(self) -> int:
        """The epoch at which the next training goes on, 0 where nothing is saved."""
        state = TrainingState.load(self.path)
        return state.position.epoch if state else 0

    @property
    def initial_step(self) -> int:
        """The step, over all epochs, at which the next training goes on."""
        state = TrainingState.load(self.path)
        if state is None:
            return 0
        return state.position.epoch * (state.position.steps_per_epoch or 0) + state.position.step

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restores what was saved, and listens for the signal."""
        build_optimizers(self.model)
        self._termination = Termination(self.model)
        topology = describe_strategy(self.model.distribute_strategy)
        self._is_chief = topology.is_chief
        self._agreement = Agreement(self.model.distribute_strategy, topology.num_workers)
        self._metrics = None
        self._input = self._resumed()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes the position, and stops here if asked."""
        self._epoch, self._steps_done = epoch, 0
        self._metrics = None
        if self._resumes is not None:
            self._settle(self._resumes, epoch)
            self._resumes = None
        self._stop_if_asked()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stops between two executions. Keras calls this in the training thread, always."""
        self._steps_done = batch
        self._stop_if_asked()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Stops between training and validation, which will reset the metrics."""
        if self._input is None:
            return
        self._steps_done = self.params.get("steps") or self._input.batches
        self._metrics = metric_values(self.model)
        self._stop_if_asked()

    def on_test_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Stops during validation, which the next run does anew."""
        if self._input is not None:
            self._stop_if_asked()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Forgets what was replayed; a signal from now on stops the next epoch's begin."""
        if self._input is not None:
            self._input.end_epoch()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Removes the state, as training is done, and listens no more.

        A signal that came after the last epoch's last step stops here: the next run trains nothing
        and goes on behind `fit`.
        """
        self._epoch, self._steps_done = int(self.params.get("epochs") or 0), 0
        self._metrics = None
        self._stop_if_asked(at_once=True)
        self._release()
        start_at(self.model, None)
        if self._is_chief and tf.io.gfile.exists(self.path):
            tf.io.gfile.remove(self.path)

    def _resumed(self) -> InputPosition:
        """Brings the model back to the saved state, if there is one, and watches its input."""
        state = TrainingState.load(self.path)
        if state is None:
            return InputPosition(self.model)
        position = state.position
        if starts_at(self.model) > position.epoch:
            self._settle(state, starts_at(self.model))
            return InputPosition(self.model)
        _require_same_steps(position, self.params.get("steps"), self.model)
        state.restore_weights(self.model)
        start_at(self.model, position.epoch)
        self._resumes = state
        _log.warning("Resumed %s at epoch %d, step %d.", self.path, position.epoch, position.step)
        return InputPosition(
            self.model,
            batches=position.batches,
            steps=position.step,
            reads=self.skip_input,
            restore_metrics=lambda: state.restore_metrics(self.model),
        )

    def _settle(self, state: TrainingState, epoch: int) -> None:
        """Lets the newer one win where another callback brought a state of its own back."""
        position = state.position
        if epoch == position.epoch:
            # BackupAndRestore keeps the end of the epoch before, and may have come later.
            state.restore_weights(self.model)
            return
        refuse(PlanError, steps.check_backup_position(position.epoch, epoch))
        if self._input is not None:
            self._input.release()
            self._input = InputPosition(self.model)
        _log.warning("%s is older than epoch %d, where training goes on.", self.path, epoch)

    def _stop_if_asked(self, *, at_once: bool = False) -> None:
        if self._agreement is None or self._input is None or self._termination is None:
            return
        if not self._agreement.stops(self._termination.was_asked, at_once=at_once):
            return
        metrics = metric_values(self.model) if self._metrics is None else self._metrics
        position = Position(
            epoch=self._epoch,
            step=self._steps_done,
            steps_per_epoch=self.params.get("steps"),
            batches=self._input.batches,
        )
        # All workers read, since some values are sums over workers; one of them writes.
        state = TrainingState.of(self.model, position, metrics)
        if self._is_chief:
            state.save(self.path)
            _log.warning(
                "Stopped at epoch %d, step %d; saved %s.",
                position.epoch,
                position.step,
                self.path,
            )
        self._release()
        raise SystemExit(self.exit_code)

    def _release(self) -> None:
        """Gives signal and train function back."""
        if self._termination is not None:
            self._termination.release()
        if self._input is not None:
            self._input.release()
        self._input = self._agreement = self._termination = None


def _require_same_steps(position: Position, announced: int | None, model: keras.Model) -> None:
    """Raises if the saved position means another one in this training."""
    finding = None
    if position.steps_per_epoch is not None and announced is not None:
        finding = steps.check_steps_announced(position.steps_per_epoch, announced)
    if finding is None and position.step:
        finding = steps.check_steps_per_execution(position.step, int(model.steps_per_execution))
    refuse(PlanError, finding)
