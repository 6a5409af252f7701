"""Measures what training achieves, execution by execution, without slowing it down."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Literal

from keras_tpu_kit import report
from keras_tpu_kit.callbacks.consumption import Consumed, rows_seen
from keras_tpu_kit.callbacks.epoch_observer import EpochObserver
from keras_tpu_kit.callbacks.throughput_picture import draw_throughput
from keras_tpu_kit.plan import BatchPlan
from keras_tpu_kit.replication import is_replicated, progress
from keras_tpu_kit.strategy import describe_strategy
from keras_tpu_kit.throughput import CHIPS, Throughput, total


class ThroughputMonitor(EpochObserver):
    """Measures samples per second, in total and per replica, and the time of each execution.

    An execution is one call of the train function, `steps_per_execution` steps. Its end is the
    moment when its logs could be read, so it includes the device's work; the first one of a
    training, which traces and compiles, is kept apart. What nobody can know is "unknown", never
    a guess.

    At the end of each epoch these keys join `logs`: `samples_per_second`,
    `samples_per_second_per_replica`, `step_seconds`, and where they are known
    `input_wait_share`, `mfu` and `scaling_efficiency`. History and every callback behind this
    one in the list see them, so put it before CSVLogger, TensorBoard and the like. An epoch
    with no execution but the first has "not a number" there.

    Args:
        plan: The plan that training follows, or `None`. It tells the batch where the model's
            own train step hides the rows.
        flops_per_step: Operations of one step over all replicas, for MFU; `callbacks_for`
            fills it in where the chip's peak is known.
        peak_flops_per_replica: Operations per second of one replica, where the chip is not in
            `CHIPS`.
        one_replica_rate: Samples per second of one replica alone, for scaling efficiency.
        verbose: Whether to print a table at the end; `"auto"` asks `fit`'s own `verbose`.
        clock: Returns seconds.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    >>> model.compile("sgd", "mse")
    >>> monitor = ThroughputMonitor()
    >>> history = model.fit(np.ones((64, 3)), np.ones((64, 1)), batch_size=8, epochs=2,
    ...                     verbose=0, callbacks=[monitor])
    >>> monitor.throughput.rows, monitor.throughput.steps      # all but the first execution
    (120, 15)
    >>> len(history.history["samples_per_second"])
    2
    """

    def __init__(
        self,
        plan: BatchPlan | None = None,
        *,
        flops_per_step: float | None = None,
        peak_flops_per_replica: float | None = None,
        one_replica_rate: float | None = None,
        verbose: bool | int | Literal["auto"] = "auto",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__()
        self.plan = plan
        self.flops_per_step = flops_per_step
        self.peak_flops_per_replica = peak_flops_per_replica
        self.one_replica_rate = one_replica_rate
        self.verbose = verbose
        self._clock = clock
        self._forget()

    def _forget(self) -> None:
        """Starts a new training's figures."""
        self._epochs: list[Throughput] = []
        self._ends: list[float] = []
        self._begun = 0
        self._started = 0.0
        self._saw_first = False
        self._rows_before: int | None = None
        self._waited_before: float | None = None
        self._peak: float | None = None
        self._is_chief = True

    @property
    def epochs(self) -> tuple[Throughput, ...]:
        """The figures of each epoch of the last training."""
        return tuple(self._epochs)

    @property
    def throughput(self) -> Throughput:
        """The figures of the last training as a whole, compilation kept apart."""
        if self._epochs:
            return total(self._epochs)
        return Throughput(num_replicas=1, rows=None, steps=0, execution_seconds=())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws samples per second over the training, and the executions' times, as a PNG.

        Args:
            path: The file to write.
        """
        draw_throughput(self.epochs, path)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts anew, and finds the peak of the chips that train."""
        self._forget()
        topology = describe_strategy(self.model.distribute_strategy)
        chip = CHIPS.get(topology.chip or "")
        self._peak = self.peak_flops_per_replica or (chip.flops_per_replica if chip else None)
        self._is_chief = topology.is_chief

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Starts an epoch's clock at its first execution, not here."""
        super().on_epoch_begin(epoch, logs)
        self._begun = 0
        self._ends = []
        self._waited_before = self._input_wait()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the time of an epoch's start, and once what the first execution consumed."""
        self._begun += 1
        if self._begun == 1:
            self._started = self._clock()
        elif not self._saw_first and self._begun == self._replayed_executions + 2:
            self._rows_before = rows_seen(self.model)
            self._waited_before = self._input_wait()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Takes the time at which an execution's logs could be read."""
        super().on_train_batch_end(batch)
        self._ends.append(self._clock())

    def on_epoch_consumed(self, epoch: int, consumed: Consumed, logs: dict[str, Any]) -> None:
        """Turns times and rows into rates, and writes them into `logs`."""
        seconds = self._execution_seconds()
        first, before = None, self._replayed_steps
        if seconds and not self._saw_first:
            self._saw_first = True
            first, seconds = seconds[0], seconds[1:]
            before += int(self.model.steps_per_execution)
        steps = max(0, consumed.steps - before)
        run = Throughput(
            num_replicas=self.num_replicas,
            rows=self._steady_rows(consumed, steps, whole_epoch=before == 0) if seconds else None,
            steps=steps,
            execution_seconds=seconds,
            first_execution_seconds=first,
            input_wait_seconds=self._waited(),
            flops_per_step=self.flops_per_step,
            peak_flops_per_replica=self._peak,
        )
        self._epochs.append(run)
        logs.update(self._figures(run))

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Prints the table."""
        wanted = self.params.get("verbose") if self.verbose == "auto" else self.verbose
        if wanted and self._is_chief:
            report.show(
                report.throughput_table(self.throughput, one_replica_rate=self.one_replica_rate)
            )

    def _execution_seconds(self) -> tuple[float, ...]:
        """Returns the seconds of each execution that was not only replayed."""
        # Helper threads may overtake each other by microseconds.
        times = [self._started, *sorted(self._ends)]
        seconds = [max(0.0, end - begin) for begin, end in itertools.pairwise(times)]
        return tuple(seconds[self._replayed_executions :])

    @property
    def _replayed_executions(self) -> int:
        return self._replayed_steps // int(self.model.steps_per_execution)

    def _steady_rows(self, consumed: Consumed, steps: int, whole_epoch: bool) -> int | None:
        """Returns the rows of the steady executions, from their count or else from the plan."""
        if consumed.rows is not None and whole_epoch:
            return consumed.rows
        if consumed.rows is not None and self._rows_before is not None:
            return consumed.rows - self._rows_before
        return steps * self.plan.global_batch_size if self.plan else None

    def _input_wait(self) -> float | None:
        """Returns the seconds that training waited for input so far, where they are measured."""
        return progress(self.model).input_wait if is_replicated(self.model) else None

    def _waited(self) -> float | None:
        waited = self._input_wait()
        return None if waited is None else waited - (self._waited_before or 0.0)

    def _figures(self, run: Throughput) -> dict[str, float]:
        figures = {
            "samples_per_second": run.samples_per_second,
            "samples_per_second_per_replica": run.samples_per_second_per_replica,
            "step_seconds": run.step_seconds,
            "input_wait_share": run.input_wait_share,
            "mfu": run.mfu,
        }
        if self.one_replica_rate is not None:
            figures["scaling_efficiency"] = run.scaling_efficiency(self.one_replica_rate)
        return {name: value for name, value in figures.items() if value is not None}
