"""KerasTuner's servicer behind a server that lets in only those who know the token."""

from __future__ import annotations

import hmac
import pathlib
import time
import types
from concurrent import futures
from typing import Any

import grpc
from keras_tuner.src import protos

from keras_tpu_kit import report
from keras_tpu_kit.checks import service as rules
from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.searching import messages
from keras_tpu_kit.searching.environment import ServiceSettings
from keras_tpu_kit.tuner.project.algorithms import DurableBayesian
from keras_tpu_kit.tuner.project.durable import DurableOracle
from keras_tpu_kit.tuner.service.servicer import SearchServicer

_POLL_SECONDS = 0.05
# What workers take at most to learn of the end, as they ask ten times a second.
_END_SECONDS = 1.5
_THREADS = 16


class ChiefServer:
    """Listens for a search's workers; use it as a context manager.

    Args:
        oracle: The search's oracle.
        settings: Where to listen, and what workers must present.

    Raises:
        SearchError: `chief-address`, if nobody can listen there.
    """

    def __init__(self, oracle: DurableOracle, settings: ServiceSettings) -> None:
        self.servicer = SearchServicer(oracle)
        if isinstance(oracle, DurableBayesian):
            oracle.propose_ahead()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(_THREADS),
            interceptors=[_TokenCheck(settings.token)],
            options=[
                ("grpc.max_receive_message_length", messages.MAX_MESSAGE_BYTES),
                # Two chiefs on one port would each get some of the workers.
                ("grpc.so_reuseport", 0),
            ],
        )
        protos.get_service_grpc().add_OracleServicer_to_server(self.servicer, self._server)
        service, method = messages.METHOD.strip("/").split("/")
        tell = grpc.unary_unary_rpc_method_handler(
            self.servicer.tell, messages.unpack, messages.pack
        )
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, {method: tell})]
        )
        try:
            if settings.certificate and settings.key:
                self.port = self._server.add_secure_port(settings.address, _tls(settings))
            else:
                self.port = self._server.add_insecure_port(settings.address)
        except RuntimeError as error:
            raise SearchError(_cannot_listen(settings, error)) from None
        plaintext = rules.check_plaintext(settings.host, settings.certificate)
        if plaintext is not None:
            report.show(plaintext)

    def __enter__(self) -> ChiefServer:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self._server.stop(grace=0.2).wait()

    def serve(self) -> None:
        """Hands out trials until none is left and the workers know it.

        Raises:
            SearchError: `search-worker-failed`, if a worker met an error that ends the search; or
                what keeps the chief from saving its state, such as `project-disk-full`.
        """
        ended_at: float | None = None
        while True:
            time.sleep(_POLL_SECONDS)
            servicer = self.servicer
            if servicer.error is not None:
                raise servicer.error
            if servicer.fatal is not None:
                raise SearchError(_worker_failed(servicer.fatal))
            servicer.check_leases()
            if servicer.all_know_the_end:
                return
            if servicer.somebody_knows_the_end:
                ended_at = ended_at or time.monotonic()
                if time.monotonic() - ended_at > _END_SECONDS:
                    return
            else:
                ended_at = None


class _TokenCheck(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses whoever does not present the token, before a byte of the message is parsed."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode() if token else None
        self._refuse = grpc.unary_unary_rpc_method_handler(_refuse)

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        """Returns the handler of the call, or one that refuses it."""
        if self._expected is None:
            return continuation(details)
        given = dict(details.invocation_metadata).get(messages.AUTHORIZATION, "")
        # Compared in constant time, so that no prefix can be guessed by the clock.
        if hmac.compare_digest(str(given).encode(), self._expected):
            return continuation(details)
        return self._refuse


def _refuse(request: bytes, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")


def _tls(settings: ServiceSettings) -> grpc.ServerCredentials:
    key = pathlib.Path(settings.key).read_bytes()
    certificate = pathlib.Path(settings.certificate).read_bytes()
    return grpc.ssl_server_credentials([(key, certificate)])


def _cannot_listen(settings: ServiceSettings, error: Exception) -> Finding:
    return Finding(
        "chief-address",
        "error",
        f"The chief cannot listen on {settings.address}: {str(error).splitlines()[0]}.",
        "The port is taken, or the address is not this machine's.",
        "Pass a free --port, and as --chief-host an address of this machine.",
    )


def _worker_failed(error: str) -> Finding:
    return Finding(
        "search-worker-failed",
        "error",
        f"A worker ended the search: {error}",
        "The error says nothing of one trial's values, so every trial would meet it.",
        "Mend it and start the same search again; finished trials are kept.",
    )
