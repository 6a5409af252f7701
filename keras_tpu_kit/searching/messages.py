"""What the processes of a search say to each other beside KerasTuner's protocol."""

from __future__ import annotations

import contextlib
import json
import pathlib
from typing import Any

from keras_tpu_kit.searching.environment import ServiceSettings

METHOD = "/keras_tpu_kit.Search/Tell"
# Key of the metadata that carries the token, as HTTP has it.
AUTHORIZATION = "authorization"
# Keys of the metadata by which a worker says who it is.
TUNER_ID = "keras-tpu-kit-tuner"
INCARNATION = "keras-tpu-kit-incarnation"
TRIAL_ID = "keras-tpu-kit-trial"
# gRPC's own default, said aloud: what is larger is refused unread.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024


def pack(message: dict[str, Any]) -> bytes:
    """Returns a message as bytes."""
    return json.dumps(message).encode()


def unpack(data: bytes) -> dict[str, Any]:
    """Returns the message that `pack` made.

    Raises:
        ValueError: If the bytes are no JSON object.
    """
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("A message is a JSON object.")
    return message


def credentials_metadata(settings: ServiceSettings) -> list[tuple[str, str]]:
    """Returns the metadata that shows the token, empty without one."""
    return [(AUTHORIZATION, f"Bearer {settings.token}")] if settings.token else []


def open_channel(settings: ServiceSettings) -> Any:
    """Returns a gRPC channel to the chief, which connects when it is first used."""
    import grpc

    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # A proxy would be asked for loopback addresses as well.
        ("grpc.enable_http_proxy", 0),
    ]
    if not settings.certificate:
        return grpc.insecure_channel(settings.address, options)
    authority = pathlib.Path(settings.certificate).read_bytes()
    return grpc.secure_channel(settings.address, grpc.ssl_channel_credentials(authority), options)


def tell_once(settings: ServiceSettings, message: dict[str, Any], timeout: float = 5.0) -> bool:
    """Tells the chief something that it can do without, and returns whether it was heard.

    Args:
        settings: Where the chief is.
        message: What to tell it.
        timeout: Seconds to wait for its answer.
    """
    import grpc

    with open_channel(settings) as channel:
        call = channel.unary_unary(METHOD, pack, unpack)
        with contextlib.suppress(grpc.RpcError):
            call(message, timeout=timeout, metadata=credentials_metadata(settings))
            return True
    return False
