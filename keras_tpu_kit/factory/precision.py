"""Which dtypes a model computes in, chosen for the hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import keras

from keras_tpu_kit.errors import FactoryError, Finding
from keras_tpu_kit.strategy import least_compute_capability
from keras_tpu_kit.topology import Topology

# Tensor cores came with Volta. Source:
# https://www.tensorflow.org/guide/mixed_precision#supported_hardware
TENSOR_CORES_FROM = (7, 0)


@contextlib.contextmanager
def dtype_policy(precision: str | None, topology: Topology) -> Iterator[None]:
    """Holds Keras's global dtype policy at `precision` while a model is built.

    Args:
        precision: `None` to leave the policy as it is, `"auto"`, or the name of a policy.
        topology: Where the model will train.

    Raises:
        FactoryError: If Keras knows no such policy, or the hardware does not have it.
    """
    if precision is None:
        yield
        return
    name = policy_name(precision, topology)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def policy_name(precision: str, topology: Topology) -> str:
    """Returns the name of the dtype policy that `precision` means on this hardware.

    `"auto"` is `"mixed_bfloat16"` on TPUs, `"mixed_float16"` on GPUs with tensor cores, and
    else `"float32"`.

    Raises:
        FactoryError: If Keras knows no such policy, or the hardware does not have it.

    Example:

    >>> policy_name("auto", Topology(accelerator="tpu", num_replicas=8))
    'mixed_bfloat16'
    >>> policy_name("auto", Topology(accelerator="cpu"))
    'float32'
    """
    if precision == "auto":
        if topology.accelerator == "tpu":
            return "mixed_bfloat16"
        capability = least_compute_capability() if topology.accelerator == "gpu" else None
        has_tensor_cores = capability is not None and capability >= TENSOR_CORES_FROM
        return "mixed_float16" if has_tensor_cores else "float32"
    if topology.accelerator == "tpu" and precision == "mixed_float16":
        raise FactoryError(
            Finding(
                "precision-not-there",
                "error",
                what="precision='mixed_float16' is asked for on a TPU.",
                why="A TPU's matrix unit computes in bfloat16; float16 is emulated and needs "
                "loss scaling.",
                fix='Use precision="mixed_bfloat16" or precision="auto".',
                cures=({"precision": "mixed_bfloat16"}, {"precision": "auto"}),
            )
        )
    try:
        return str(keras.dtype_policies.get(precision).name)
    except (ValueError, TypeError):
        raise FactoryError(
            Finding(
                "precision-unknown",
                "error",
                what=f"precision={precision!r} is no dtype policy of Keras.",
                why="Layers take their compute and variable dtypes from a policy.",
                fix='Use precision="auto", "float32", "mixed_bfloat16" or "mixed_float16".',
                cures=({"precision": "auto"}, {"precision": "float32"}),
            )
        ) from None
