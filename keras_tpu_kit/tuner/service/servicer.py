# ruff: noqa: N802 -- the methods are named by KerasTuner's protocol
"""What a chief answers to its workers, and what it knows of them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from keras_tuner.src import protos
from keras_tuner.src.distribute.oracle_chief import OracleServicer

from keras_tpu_kit.errors import SearchError
from keras_tpu_kit.searching import messages
from keras_tpu_kit.tuner.internals import Trial, TrialStatus
from keras_tpu_kit.tuner.project.durable import DurableOracle

# A worker tells every two seconds that it lives; one that is silent so long has died or is
# cut off, and its trial is given to another.
LEASE_SECONDS = 30.0


@dataclasses.dataclass
class _Worker:
    """What the chief knows of a worker."""

    incarnation: str
    heard: float
    knows_the_end: bool = False


class SearchServicer(OracleServicer):  # type: ignore[misc]
    """Answers KerasTuner's protocol, and keeps account of who runs which trial.

    Args:
        oracle: The search's oracle.
        clock: Seconds, from any start.
    """

    def __init__(self, oracle: DurableOracle, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(oracle)
        self._clock = clock
        self._workers: dict[str, _Worker] = {}
        # Trials that were running when this chief began; their workers may still live.
        self._unclaimed = {name: clock() for name in oracle.ongoing_trials}
        self._reasons: dict[str, str | None] = {}
        self.fatal: str | None = None
        # What the chief itself met, such as a full disk.
        self.error: SearchError | None = None

    # --- KerasTuner's protocol -----------------------------------------------------------------

    def CreateTrial(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Hands out a trial; says that there is none to come only once all have ended."""
        with self._answering(context):
            self._admit(request.tuner_id, context)
            response = super().CreateTrial(request, context)
            stopped = TrialStatus.to_proto(TrialStatus.STOPPED)
            if response.trial.status == stopped:
                if self.is_over:
                    self._workers[request.tuner_id].knows_the_end = True
                else:
                    # A trial of another worker may come back, and somebody has to be there.
                    response.trial.status = TrialStatus.to_proto(TrialStatus.IDLE)
            return response

    def UpdateTrial(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Records an epoch; the answer's status `"STOPPED"` asks the worker to end the trial."""
        with self._answering(context):
            self._require_owner(request.trial_id, context)
            return super().UpdateTrial(request, context)

    def EndTrial(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Records how a trial ended; repeated, it changes nothing."""
        with self._answering(context):
            trial_id = request.trial.trial_id
            if not self.oracle.has_ended(trial_id):
                self._require_owner(trial_id, context)
            trial = self._trial_from(request, context)
            trial.message = self._reasons.pop(trial_id, None)
            self.oracle.end_trial(trial)
            return _empty_end()

    def UpdateSpace(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Adds hyperparameters that a worker found."""
        with self._answering(context):
            return super().UpdateSpace(request, context)

    def GetSpace(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns the search space."""
        with self._answering(context):
            return super().GetSpace(request, context)

    def GetTrial(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns a trial."""
        with self._answering(context):
            self._require_known(request.trial_id, context)
            return super().GetTrial(request, context)

    def GetBestTrials(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns the best trials so far."""
        with self._answering(context):
            return super().GetBestTrials(request, context)

    # --- The kit's own messages ----------------------------------------------------------------

    def tell(self, message: dict[str, Any], context: grpc.ServicerContext) -> dict[str, Any]:
        """Answers a message of the kit's own: hello, alive, reason, failed, died or stopped."""
        kind = message.get("kind")
        with self._answering(context):
            if kind == "hello":
                self._admit(str(message.get("tuner_id")), context)
                return {
                    "seed": self.oracle.seed,
                    "max_consecutive_failed_trials": self.oracle.max_consecutive_failed_trials,
                }
            if kind == "alive":
                self._admit(str(message.get("tuner_id")), context)
                return {}
            if kind == "reason":
                self._reasons[str(message["trial_id"])] = message.get("reason")
                return {}
            if kind == "failed":
                self.fatal = self.fatal or str(message.get("error"))
                return {}
            if kind == "died":
                self._lose(str(message.get("tuner_id")), "its process died")
                return {}
            if kind == "stopped":
                self._lose(str(message.get("tuner_id")), "it was told to stop", crashed=False)
                return {}
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown message {kind!r}")
        return {}

    # --- The chief -----------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether no trial runs or waits; whether others would be created, the oracle knows."""
        return not self.oracle.ongoing_trials and not self.oracle._retry_queue

    @property
    def all_know_the_end(self) -> bool:
        """Whether the search is over and every worker that lives was told so."""
        with self.oracle.alone():
            now = self._clock()
            told = [worker.knows_the_end for worker in self._workers.values()]
            alive = [now - worker.heard < LEASE_SECONDS for worker in self._workers.values()]
            return (
                self.is_over
                and any(told)
                and all(knows or not lives for knows, lives in zip(told, alive, strict=True))
            )

    @property
    def somebody_knows_the_end(self) -> bool:
        """Whether the search is over."""
        with self.oracle.alone():
            return self.is_over and any(w.knows_the_end for w in self._workers.values())

    def check_leases(self) -> None:
        """Gives back the trials of workers that have been silent for too long."""
        with self.oracle.alone():
            now = self._clock()
            silent = [
                name for name, w in self._workers.items() if now - w.heard > LEASE_SECONDS
            ] + [name for name, since in self._unclaimed.items() if now - since > LEASE_SECONDS]
            for name in silent:
                self._lose(name, f"it was silent for {LEASE_SECONDS:.0f} seconds")

    @contextlib.contextmanager
    def _answering(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Keeps other calls out; a state that cannot be saved ends the chief, not a worker.

        Until then workers are told what they are told by a chief that is being started again.
        """
        with self.oracle.alone():
            if self.error is not None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the search is ending")
            try:
                yield
            except SearchError as error:
                self.error = error
                context.abort(grpc.StatusCode.UNAVAILABLE, "the search is ending")

    def _admit(self, tuner_id: str, context: grpc.ServicerContext) -> None:
        """Notes that a worker lives; a new process under a known name has lost its trial."""
        metadata = dict(context.invocation_metadata())
        incarnation = str(metadata.get(messages.INCARNATION, ""))
        known = self._workers.get(tuner_id)
        if known is None:
            claimed = tuner_id in self._unclaimed
            # The chief has no memory of incarnations; the trial that it names tells them apart.
            if claimed and metadata.get(messages.TRIAL_ID) != self._ongoing(tuner_id):
                self._lose(tuner_id, "its process was replaced")
            self._unclaimed.pop(tuner_id, None)
        elif known.incarnation != incarnation:
            self._lose(tuner_id, "its process was replaced")
        told = known is not None and known.incarnation == incarnation and known.knows_the_end
        self._workers[tuner_id] = _Worker(incarnation, self._clock(), told)

    def _ongoing(self, tuner_id: str) -> str | None:
        trial = self.oracle.ongoing_trials.get(tuner_id)
        return None if trial is None else str(trial.trial_id)

    def _lose(self, tuner_id: str, why: str, *, crashed: bool = True) -> None:
        """Puts the trial of a worker that is gone back into the queue."""
        self._workers.pop(tuner_id, None)
        self._unclaimed.pop(tuner_id, None)
        self.oracle.tuner_ids.discard(tuner_id)
        trial_id = self._ongoing(tuner_id)
        if trial_id is not None:
            self.oracle.give_back(trial_id, crashed=crashed)
            _say(f"{tuner_id} lost trial {trial_id}: {why}; the trial is done again.")

    def _require_known(self, trial_id: str, context: grpc.ServicerContext) -> None:
        if trial_id not in self.oracle.trials:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no trial {trial_id!r}")

    def _require_owner(self, trial_id: str, context: grpc.ServicerContext) -> None:
        """Refuses a report from a worker whose trial was given to another meanwhile."""
        self._require_known(trial_id, context)
        tuner_id = dict(context.invocation_metadata()).get(messages.TUNER_ID)
        if tuner_id is None:
            return
        self._admit(str(tuner_id), context)
        if self._ongoing(str(tuner_id)) != trial_id:
            text = f"trial {trial_id} is not {tuner_id}'s any more"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)

    def _trial_from(self, request: Any, context: grpc.ServicerContext) -> Any:
        trial = Trial.from_proto(request.trial)
        ended = (TrialStatus.COMPLETED, TrialStatus.INVALID, TrialStatus.FAILED)
        if trial.status not in ended:
            text = f"a trial does not end with status {trial.status}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        return trial


def _empty_end() -> Any:
    return protos.get_service().EndTrialResponse()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201
