"""What the GPUs of this machine can compute."""

from __future__ import annotations


def least_compute_capability() -> tuple[int, int] | None:
    """Returns the lowest CUDA compute capability of the visible GPUs, `None` where unknown.

    Example:

    >>> capability = least_compute_capability()
    >>> capability is None or capability >= (3, 0)
    True
    """
    import tensorflow as tf

    details = [
        tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.get_visible_devices("GPU")
    ]
    capabilities = [detail.get("compute_capability") for detail in details]
    known = [tuple(capability) for capability in capabilities if capability is not None]
    return min(known) if known and len(known) == len(capabilities) else None
