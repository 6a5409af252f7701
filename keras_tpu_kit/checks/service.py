"""Rules of a search over several processes: who may listen, who may ask, who gets what."""

from __future__ import annotations

from keras_tpu_kit.errors import Finding

MIN_TOKEN_LENGTH = 16
_LOOPBACK = ("127.", "::1", "localhost")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host's address.

    Example:

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host.startswith(_LOOPBACK[0]) or host in _LOOPBACK[1:]


def check_token(token: str) -> Finding | None:
    """Returns `token-too-short` for a secret that can be guessed, else `None`.

    Args:
        token: The secret that workers present; empty for none.

    Example:

    >>> check_token("letmein").code
    'token-too-short'
    """
    if not token or len(token) >= MIN_TOKEN_LENGTH:
        return None
    return Finding(
        "token-too-short",
        "error",
        f"The search's token has {len(token)} characters.",
        "Whoever guesses it can read the search space and report false results.",
        f"Use at least {MIN_TOKEN_LENGTH} characters, for example from `openssl rand -hex 16`.",
        cures=({"token": "0123456789abcdef" * 2},),
    )


def check_listening(host: str, token: str) -> Finding | None:
    """Returns `chief-without-token` where other machines could reach an open chief, else `None`.

    Args:
        host: Address that the chief listens on.
        token: The secret that workers present; empty for none.

    Example:

    >>> check_listening("0.0.0.0", "").code
    'chief-without-token'
    """
    if token or is_loopback(host):
        return None
    return Finding(
        "chief-without-token",
        "error",
        f"The chief would listen on {host} without a token.",
        "Every machine that reaches the port could read the search and report false results.",
        "Set KERAS_TPU_KIT_TOKEN to the same secret for the chief and its workers, for example "
        "from `openssl rand -hex 16`; or listen on 127.0.0.1.",
        cures=({"host": "127.0.0.1"}, {"token": "0123456789abcdef" * 2}),
    )


def check_plaintext(host: str, certificate: str) -> Finding | None:
    """Returns `chief-in-plaintext` where a token travels readable between machines, else `None`.

    Args:
        host: Address that the chief listens on.
        certificate: File of its certificate; empty for none.
    """
    if certificate or is_loopback(host):
        return None
    return Finding(
        "chief-in-plaintext",
        "warning",
        f"The chief on {host} speaks plain text.",
        "Who can listen on the network between the machines can read the token, and then take "
        "part in the search.",
        "Pass --tls-certificate and --tls-key to the chief and --tls-certificate to the workers, "
        "or keep to a network that you trust.",
        cures=({"certificate": "chief.pem"},),
    )


def check_workers(num_workers: int, num_gpus: int, has_tpu: bool) -> Finding | None:
    """Returns why a machine cannot train so many trials at once, else `None`.

    Args:
        num_workers: Processes that would train, each a trial of its own.
        num_gpus: GPUs of the machine, 0 to share its CPU cores instead.
        has_tpu: Whether the machine is a TPU's host.

    Example:

    >>> check_workers(2, 0, has_tpu=True).code
    'tpu-not-shared'
    """
    if num_workers < 1:
        return Finding(
            "no-workers",
            "error",
            f"workers={num_workers} train nothing.",
            "The chief hands out trials and trains none itself.",
            "Use --workers 1.",
            cures=({"num_workers": 1},),
        )
    if has_tpu and num_workers > 1:
        return Finding(
            "tpu-not-shared",
            "error",
            f"{num_workers} workers cannot share this machine's TPU.",
            "A TPU's runtime belongs to one process, so the second worker would wait for it or "
            "fail.",
            "Use --workers 1, which trains each trial on all cores of the TPU; or one machine "
            "per worker, with --chief-host.",
            cures=({"num_workers": 1},),
        )
    if num_gpus and num_workers > num_gpus:
        return Finding(
            "more-workers-than-gpus",
            "error",
            f"{num_workers} workers cannot each have one of {num_gpus} GPUs.",
            "TensorFlow takes a GPU's whole memory, so two workers on one GPU fail.",
            f"Use --workers {num_gpus}, or --accelerator cpu.",
            cures=({"num_workers": num_gpus},),
        )
    return None
