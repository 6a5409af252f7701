"""How a learning rate follows the batch when replicas make it larger. Opt-in, always."""

from __future__ import annotations

import math
from typing import Any, Literal

from keras_tpu_kit.errors import Finding, PlanError

Rule = Literal["linear", "sqrt"]


def scaled_learning_rate(
    base_learning_rate: float,
    global_batch_size: int,
    *,
    base_batch_size: int = 256,
    rule: Rule = "linear",
) -> float:
    """Returns the learning rate for a batch other than the one it was tuned with.

    Args:
        base_learning_rate: The rate that works with `base_batch_size`.
        global_batch_size: Rows of one step over all replicas.
        base_batch_size: Rows of one step where `base_learning_rate` was tuned.
        rule: `"linear"` multiplies by the ratio of the batches (for SGD); `"sqrt"` by its
            square root (keeps the variance of the update; often used with Adam).

    Raises:
        PlanError: If the rule is unknown or a number is not positive.

    Source: linear, Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 2.1; square
    root, Krizhevsky 2014, https://arxiv.org/abs/1404.5997, section 5.

    Example:

    >>> scaled_learning_rate(0.1, 8192)
    3.2
    >>> scaled_learning_rate(1e-3, 1024, rule="sqrt")
    0.002
    """
    if min(base_learning_rate, global_batch_size, base_batch_size) <= 0:
        raise PlanError(
            Finding(
                "rate-not-positive",
                "error",
                what=f"base_learning_rate={base_learning_rate}, global_batch_size="
                f"{global_batch_size}, base_batch_size={base_batch_size} are not all positive.",
                why="A rate is scaled by the ratio of two batches.",
                fix="Use the rate and the batch that were tuned together, such as "
                "base_learning_rate=0.1, base_batch_size=256.",
            )
        )
    ratio = global_batch_size / base_batch_size
    if rule == "linear":
        return base_learning_rate * ratio
    if rule == "sqrt":
        return base_learning_rate * math.sqrt(ratio)
    raise PlanError(
        Finding(
            "unknown-rule",
            "error",
            what=f"rule={rule!r} is not known.",
            why="A rate follows the batch linearly or by its square root; others have no source.",
            fix='Use rule="linear" or rule="sqrt".',
            cures=({"rule": "linear"}, {"rule": "sqrt"}),
        )
    )


def warmup_args(
    base_learning_rate: float,
    global_batch_size: int,
    *,
    steps_per_epoch: int,
    epochs: int,
    warmup_epochs: float = 5,
    base_batch_size: int = 256,
    rule: Rule = "linear",
) -> dict[str, Any]:
    """Returns the arguments of Keras's `CosineDecay` for a scaled rate with a warm-up.

    The rate climbs in a straight line from `base_learning_rate` to the scaled rate, then
    falls along a cosine to 0 at the end of training. A large rate in the first epochs is what
    the scaling rule does not survive; hence the warm-up.

    Args:
        base_learning_rate: The rate that works with `base_batch_size`.
        global_batch_size: Rows of one step over all replicas.
        steps_per_epoch: Steps of one epoch, as in `plan.steps_per_epoch`.
        epochs: Epochs of the whole training.
        warmup_epochs: Epochs of the climb.
        base_batch_size: Rows of one step where `base_learning_rate` was tuned.
        rule: `"linear"` or `"sqrt"`, as in `scaled_learning_rate`.

    Raises:
        PlanError: If the warm-up is longer than the training, or the rate cannot be scaled.

    Source: Goyal et al. 2017, https://arxiv.org/abs/1706.02677, section 2.2 (five epochs).

    Example:

    >>> args = warmup_args(0.1, 1024, steps_per_epoch=50, epochs=90)
    >>> args["warmup_target"], args["warmup_steps"], args["decay_steps"]
    (0.4, 250, 4250)

    ```python
    schedule = keras.optimizers.schedules.CosineDecay(**args)
    optimizer = keras.optimizers.SGD(schedule, momentum=0.9)
    ```
    """
    if not 0 <= warmup_epochs < epochs:
        raise PlanError(
            Finding(
                "warmup-too-long",
                "error",
                what=f"warmup_epochs={warmup_epochs} do not fit into epochs={epochs}.",
                why="The rate would never reach the value that it warms up to.",
                fix=f"Use warmup_epochs={min(5, max(0, epochs - 1))} or more epochs.",
                cures=({"warmup_epochs": min(5, max(0, epochs - 1))},),
            )
        )
    warmup_steps = round(warmup_epochs * steps_per_epoch)
    return {
        "initial_learning_rate": base_learning_rate,
        "warmup_target": scaled_learning_rate(
            base_learning_rate, global_batch_size, base_batch_size=base_batch_size, rule=rule
        ),
        "warmup_steps": warmup_steps,
        "decay_steps": epochs * steps_per_epoch - warmup_steps,
    }
