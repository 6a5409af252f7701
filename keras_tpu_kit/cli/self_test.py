"""A small training on whatever hardware is here, held against one CPU device."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from keras_tpu_kit.errors import Finding

_ROWS, _FEATURES, _CLASSES, _EPOCHS, _STEPS = 480, 16, 4, 2, 10
# Largest |difference| over largest |weight|. Rounding alone on CPUs; TensorFloat-32 on GPUs and
# bfloat16 products on TPUs keep 10 and 8 bits of each factor.
_TOLERANCE = {"cpu": 1e-4, "gpu": 1e-2, "tpu": 5e-2}


@dataclasses.dataclass(frozen=True)
class SelfTest:
    """What a small training did.

    Args:
        figures: Name to value, as JSON types.
        findings: What is wrong with it, if anything.
    """

    figures: dict[str, Any]
    findings: list[Finding]

    def as_rows(self) -> dict[str, tuple[Any, str]]:
        """Returns the figures as rows of a table."""
        return {
            name.replace("_", " "): ("", value) if isinstance(value, str) else (value, "")
            for name, value in self.figures.items()
        }


def run_self_test(has_tpu: bool, gpus: Sequence[str]) -> SelfTest:
    """Trains the same model on the hardware here and on one CPU device, and compares them.

    Args:
        has_tpu: Whether this machine has a TPU chip.
        gpus: Names of its GPUs; without them and a TPU, two replicas are simulated.
    """
    import tensorflow as tf

    from keras_tpu_kit.strategy import describe_strategy, detect_strategy, explain_strategy
    from keras_tpu_kit.strategy.environment import tpu_in_environment

    begun = time.perf_counter()
    is_simulated = not (has_tpu or gpus or tpu_in_environment())
    strategy = detect_strategy(simulate=2) if is_simulated else detect_strategy()
    topology = describe_strategy(strategy)
    detected = time.perf_counter()
    weights, accuracy, plan = _train(strategy)
    trained = time.perf_counter()
    expected, _, _ = _train(tf.distribute.OneDeviceStrategy("/cpu:0"), plan.global_batch_size)
    gap = _gap(weights, expected)
    tolerance = _TOLERANCE[topology.accelerator]
    figures = {
        "hardware": explain_strategy(strategy),
        "chip": topology.chip or "unknown",
        "num_replicas": topology.num_replicas,
        "global_batch_size": plan.global_batch_size,
        "steps_per_execution": plan.steps_per_execution,
        "detection_seconds": round(detected - begun, 1),
        "training_seconds": round(trained - detected, 1),
        "accuracy": round(accuracy, 4),
        "gap_to_one_device": float(f"{gap:.2g}"),
        "tolerance": tolerance,
        "result": "as one device" if gap <= tolerance else "NOT as one device",
    }
    finding = _different(gap, tolerance, str(topology))
    return SelfTest(figures, [finding] if finding is not None else [])


def _train(strategy: Any, global_batch_size: int | None = None) -> tuple[list[Any], float, Any]:
    """Returns the weights, the accuracy and the plan of a small training on a strategy."""
    import keras
    import numpy as np

    import keras_tpu_kit as ktk

    class Classifier(ktk.ModelFactory):
        def build(self, hp: Any) -> keras.Model:
            start = keras.initializers.GlorotUniform
            return keras.Sequential(
                [
                    keras.Input((_FEATURES,)),
                    keras.layers.Dense(32, activation="relu", kernel_initializer=start(seed=1)),
                    keras.layers.Dense(_CLASSES, kernel_initializer=start(seed=2)),
                ]
            )

        def compile_args(self, hp: Any) -> dict[str, Any]:
            return {
                "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
                "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                "metrics": ["accuracy"],
            }

    draw = np.random.default_rng(7)
    centres = draw.normal(size=(_CLASSES, _FEATURES))
    labels = draw.integers(_CLASSES, size=_ROWS).astype("int32")
    rows = (centres[labels] + 0.3 * draw.normal(size=(_ROWS, _FEATURES))).astype("float32")
    plan = ktk.plan_batches(
        ktk.describe_strategy(strategy),
        num_samples=_ROWS,
        global_batch_size=global_batch_size,
        target_batch_size=None if global_batch_size else _ROWS // _STEPS,
        num_validation_samples=_ROWS,
    )
    model = Classifier(strategy, plan).create()
    train = ktk.make_dataset((rows, labels), plan, shuffle=False)
    model.fit(train, epochs=_EPOCHS, verbose=0, **plan.fit_args())
    valid = ktk.make_dataset((rows, labels), plan, training=False)
    results = model.evaluate(valid, verbose=0, return_dict=True)
    return [weight.numpy() for weight in model.weights], float(results["accuracy"]), plan


def _gap(weights: Sequence[Any], expected: Sequence[Any]) -> float:
    """Returns the largest difference of any tensor, relative to its largest weight."""
    import numpy as np

    return max(
        float(np.abs(here - there).max() / max(np.abs(there).max(), 1e-12))
        for here, there in zip(weights, expected, strict=True)
    )


def _different(gap: float, tolerance: float, topology: str) -> Finding | None:
    """Returns a finding where the replicas did not train as one device did."""
    if gap <= tolerance:  # NaN is not
        return None
    return Finding(
        "self-test-differs",
        "error",
        what=f"After {_EPOCHS} epochs on {topology} the weights differ from one CPU device's by "
        f"{gap:.2g} of the largest, more than {tolerance:g}.",
        why="Replicas that train in step must end where one device does, but for rounding.",
        fix="Report it with the output of keras-tpu-kit doctor --self-test --json.",
    )
