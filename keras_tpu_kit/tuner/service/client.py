"""A worker's oracle: asks the chief, says so when it does not answer, and never for ever."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from keras_tuner.src import protos
from keras_tuner.src.distribute.oracle_client import OracleClient

from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.searching import SearchOver, messages
from keras_tpu_kit.searching.environment import ServiceSettings
from keras_tpu_kit.tuner.internals import Trial, TrialStatus
from keras_tpu_kit.tuner.service.retirement import Retirement

_CALL_SECONDS = 60.0
_RETRY_SECONDS = 0.3
_SAY_SECONDS = 5.0
_ALIVE_SECONDS = 2.0

_Answer = TypeVar("_Answer")


class ChiefClient(OracleClient):  # type: ignore[misc]
    """KerasTuner's client of a chief, with a token, bounded waits and signs of life.

    Args:
        oracle: The worker's own oracle, which knows the settings that do not travel.
        settings: Where the chief is, and what to present.
        is_over: Whether the project's files say that the search is over, asked when no chief
            answers.

    Raises:
        SearchOver: If no chief answers and the search is over, from every method.
        SearchError: `chief-missing`, `chief-refused` or `chief-lost`, from every method.
    """

    def __init__(
        self,
        oracle: Any,
        settings: ServiceSettings,
        is_over: Callable[[float], bool] = lambda since: False,
    ) -> None:
        # Not KerasTuner's own, which opens a channel without credentials.
        self._oracle = oracle
        self._settings = settings
        self._is_over = is_over
        self.tuner_id = settings.tuner_id
        self.multi_worker = False
        self.should_report = True
        self.retirement = Retirement(settings.max_trials, settings.max_growth_mb)
        self._incarnation = uuid.uuid4().hex
        self._trial_id: str | None = None
        self._has_answered = False
        self._connect()
        answer = self._tell({"kind": "hello", "tuner_id": self.tuner_id})
        # The weights that a trial begins with follow from the search's seed.
        oracle.seed = answer["seed"]
        threading.Thread(target=self._show_life, daemon=True, name="show-life").start()

    def create_trial(self, tuner_id: str) -> Trial:
        """Returns the next trial; or one that ends this worker, when it is to be replaced."""
        self._trial_id = None
        if self.retirement.is_due():
            return Trial(self._oracle.get_space(), status=TrialStatus.STOPPED)
        trial = self._ask(lambda: super(ChiefClient, self).create_trial(tuner_id))
        if trial.status == TrialStatus.RUNNING:
            self.retirement.count_trial()
            self._trial_id = trial.trial_id
        return trial

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """Reports metrics; the answer's status `"STOPPED"` asks to end the trial."""
        return self._ask(lambda: super(ChiefClient, self).update_trial(trial_id, metrics, step))

    def end_trial(self, trial: Trial) -> None:
        """Reports how a trial ended, and why, which KerasTuner's message has no room for."""

        def report() -> None:
            reason = {"kind": "reason", "trial_id": trial.trial_id, "reason": trial.message}
            self._tell_once(reason)
            super(ChiefClient, self).end_trial(trial)

        self._ask(report)
        self._trial_id = None

    def get_space(self) -> Any:
        """Returns the search space."""
        return self._ask(lambda: super(ChiefClient, self).get_space())

    def update_space(self, hyperparameters: Any) -> None:
        """Tells the chief of hyperparameters that the model asked for."""
        self._ask(lambda: super(ChiefClient, self).update_space(hyperparameters))

    def get_trial(self, trial_id: str) -> Trial:
        """Returns a trial."""
        return self._ask(lambda: super(ChiefClient, self).get_trial(trial_id))

    def get_best_trials(self, num_trials: int = 1) -> list[Trial]:
        """Returns the best trials so far."""
        trials: list[Trial] = self._ask(
            lambda: super(ChiefClient, self).get_best_trials(num_trials)
        )
        return trials

    # --- The connection ------------------------------------------------------------------------

    def _connect(self) -> None:
        channel = grpc.intercept_channel(
            messages.open_channel(self._settings), _Introduction(self._metadata)
        )
        self.stub = _Bounded(protos.get_service_grpc().OracleStub(channel))
        self._call = channel.unary_unary(messages.METHOD, messages.pack, messages.unpack)

    def _metadata(self) -> list[tuple[str, str]]:
        own = [
            (messages.TUNER_ID, self.tuner_id),
            (messages.INCARNATION, self._incarnation),
            *([(messages.TRIAL_ID, self._trial_id)] if self._trial_id is not None else []),
        ]
        return [*messages.credentials_metadata(self._settings), *own]

    def _tell_once(self, message: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._call(message, timeout=_CALL_SECONDS)
        return answer

    def _tell(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ask(lambda: self._tell_once(message))

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Asks until the chief answers, or for as long as it may be silent."""
        begun = said = time.monotonic()
        while True:
            try:
                answer = question()
            except grpc.RpcError as error:
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.StatusCode.CANCELLED,
                ):
                    raise SearchError(_refused(self._settings, error)) from None
                waited, limit = time.monotonic() - begun, self._patience
                if waited > limit and self._is_over(self._settings.begun):
                    raise SearchOver(_over(self._settings)) from None
                if waited > limit:
                    raise SearchError(_silent(self._settings, waited, self._has_answered)) from None
                if time.monotonic() - said > _SAY_SECONDS:
                    said = time.monotonic()
                    _say(
                        f"{self.tuner_id}: the chief at {self._settings.address} has not answered "
                        f"for {waited:.0f} s; giving up after {limit:.0f} s."
                    )
                time.sleep(_RETRY_SECONDS)
            else:
                self._has_answered = True
                return answer

    @property
    def _patience(self) -> float:
        settings = self._settings
        return settings.lost_seconds if self._has_answered else settings.wait_seconds

    def _show_life(self) -> None:
        """Tells the chief every few seconds that this worker and its trial are alive."""
        while True:
            time.sleep(_ALIVE_SECONDS)
            try:
                self._call({"kind": "alive", "tuner_id": self.tuner_id}, timeout=_ALIVE_SECONDS)
            except (grpc.RpcError, ValueError):
                # The trial's own calls will say so; ValueError: the channel was closed.
                continue


class _Introduction(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Adds to each call who asks."""

    def __init__(self, metadata: Callable[[], list[tuple[str, str]]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Continues the call with metadata."""
        return continuation(
            _Details(details, [*(details.metadata or ()), *self._metadata()]), request
        )


class _Details(grpc.ClientCallDetails):  # type: ignore[misc]
    """A call's details with other metadata."""

    def __init__(self, details: Any, metadata: list[tuple[str, str]]) -> None:
        self.method, self.timeout = details.method, details.timeout
        self.credentials, self.wait_for_ready = details.credentials, details.wait_for_ready
        self.compression, self.metadata = details.compression, metadata


class _Bounded:
    """KerasTuner's stub, whose calls would each wait an hour for a chief."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._stub, name)
        return lambda request, **_: call(request, timeout=_CALL_SECONDS)


def connect(oracle: Any, is_over: Callable[[float], bool]) -> ChiefClient | None:
    """Returns a client of the chief that the environment names; `None` if it names none.

    Args:
        oracle: This process's own oracle.
        is_over: Whether the project's files say that the search has ended since a time.

    Raises:
        SearchError: If the chief does not answer, or refuses.
    """
    settings = ServiceSettings.from_environment(os.environ)
    if settings is None or settings.is_chief:
        return None
    return ChiefClient(oracle, settings, is_over)


def _over(settings: ServiceSettings) -> Finding:
    return Finding(
        "chief-missing",
        "error",
        f"No chief answers at {settings.address}, and the project says that its search is over.",
        "This worker came, or came back, after the last trial had ended.",
        "Nothing is left to do; to extend the search, start its chief with more max_trials.",
    )


def _silent(settings: ServiceSettings, waited: float, has_answered: bool) -> Finding:
    if has_answered:
        return Finding(
            "chief-lost",
            "error",
            f"The chief at {settings.address} has not answered for {waited:.0f} seconds.",
            "Without it nobody hands out trials or keeps their results.",
            "Start the search again; every finished trial is in the project's files.",
        )
    return Finding(
        "chief-missing",
        "error",
        f"No chief answered at {settings.address} within {waited:.0f} seconds.",
        "KERASTUNER_ORACLE_IP is set, so this process is a worker and gets its trials from a "
        "chief.",
        "Start the chief first, for example with `keras-tpu-kit search MODULE:make_tuner "
        "--workers 2`; or unset KERASTUNER_ORACLE_IP to search in this process alone; or set "
        "KERAS_TPU_KIT_WAIT_SECONDS=300 to wait longer.",
    )


def _refused(settings: ServiceSettings, error: grpc.RpcError) -> Finding:
    code, details = error.code(), error.details()
    if code == grpc.StatusCode.UNAUTHENTICATED:
        return Finding(
            "chief-refused",
            "error",
            f"The chief at {settings.address} refused this worker: {details}.",
            "Only processes that know the search's token take part in it.",
            "Set KERAS_TPU_KIT_TOKEN to the chief's own.",
        )
    if code == grpc.StatusCode.FAILED_PRECONDITION:
        return Finding(
            "trial-given-away",
            "error",
            f"The chief at {settings.address} gave this worker's trial to another: {details}.",
            "The worker was silent for so long that it counted as dead.",
            "Start the worker again, which takes another trial.",
        )
    return Finding(
        "chief-answer",
        "error",
        f"The chief at {settings.address} answered {code.name}: {details}.",
        "The worker's request does not fit the search as the chief knows it.",
        "Start chief and workers from the same code.",
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
