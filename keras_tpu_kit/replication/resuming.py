"""Where training stands in its input, and how it is brought back there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_tpu_kit.replication import preparation


class InputPosition:
    """Stands in for a model's train function, and counts the batches its iterator gave.

    On the way back to where a training was stopped it takes batches without training on them:
    those of the earlier epochs at once, and those of the epoch that was stopped one execution
    at a time, so that Keras's loop, its progress bar and its callbacks see a whole epoch.

    Args:
        model: A model in `fit`, before its first step.
        batches: Batches that the iterator had given when training was stopped; 0 begins anew.
        steps: Steps of the epoch that was stopped which are done already.
        reads: Whether the used batches are still to come; `False` where the data begins behind
            them.
        restore_metrics: Is called before the first step, when all metrics have been built.
    """

    def __init__(
        self,
        model: Any,
        *,
        batches: int = 0,
        steps: int = 0,
        reads: bool = True,
        restore_metrics: Callable[[], None] | None = None,
    ) -> None:
        self.batches = 0
        self.replayed_steps = steps
        self._reads = reads
        self._ahead = batches - steps if reads else 0
        self._to_replay = steps
        self._restore_metrics = restore_metrics
        self._iterator: Any = None
        self._model = model
        self._run = model.train_function
        # A training that failed may have left its own behind.
        while isinstance(self._run, InputPosition):
            self._run = self._run._run
        model.train_function = self

    def __call__(self, iterator: Any) -> dict[str, Any]:
        """Runs the next execution, or passes over one that was run before."""
        steps = int(self._model.steps_per_execution)
        if iterator is not self._iterator:
            self._iterator, self.batches = iterator, 0
            self._take(self._ahead)
            self._ahead = 0
        if self._restore_metrics is not None:
            # Keras would make the metrics' variables in the first step.
            preparation.build(self._model, preparation.of_first_replica(iterator.element_spec))
            self._restore_metrics()
            self._restore_metrics = None
        if self._to_replay > 0:
            self._to_replay -= steps
            self._take(steps if self._reads else 0)
            return dict(self._model.get_metrics_result())
        logs: dict[str, Any] = self._run(iterator)
        self.batches += steps
        return logs

    def release(self) -> None:
        """Gives the model its own train function back."""
        self._model.train_function = self._run

    def end_epoch(self) -> None:
        """Forgets the replayed steps: they belong to one epoch only."""
        self.replayed_steps = 0

    def _take(self, count: int) -> None:
        if count:
            _take_batches(self._iterator, tf.constant(count))
            self.batches += count


def start_at(model: Any, epoch: int | None) -> None:
    """Makes the `fit` that has just begun start at this epoch; `None` leaves it to the next one."""
    model._initial_epoch = epoch


def starts_at(model: Any) -> int:
    """Returns the epoch at which a callback makes the `fit` that has just begun start, or 0."""
    return int(model._initial_epoch or 0)


def replayed_steps(model: Any) -> int:
    """Returns the steps of the current epoch that were run before training was stopped."""
    position = model.train_function
    return position.replayed_steps if isinstance(position, InputPosition) else 0


@tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
def _take_batches(iterator: Any, count: Any) -> None:
    for _ in tf.range(count):
        iterator.get_next()
