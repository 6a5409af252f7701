"""One training in a process of its own, measured; run as `python -m` by `series`."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_tpu_kit.errors import FactoryError, Finding, KitError
from keras_tpu_kit.factory import ModelFactory
from keras_tpu_kit.strategy import detect_strategy
from keras_tpu_kit.targets import load_target


def main(argv: Sequence[str] | None = None) -> None:
    """Trains what the arguments name and writes its rate as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--accelerator", required=True)
    parser.add_argument("--processors", default="")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args(argv)
    processors = [int(each) for each in args.processors.split(",") if each]
    if processors:
        # Before TensorFlow counts the processors for its pools of threads.
        os.sched_setaffinity(0, processors)
    try:
        factory = factory_on(load_target(args.target), _strategy(args))
        run = factory.fit(
            factory.data()[0],
            global_batch_size=args.batch,
            epochs=args.epochs,
            seed=0,
            verbose=0,
        )
    except KitError as error:
        # What is wrong with the target, in the words that it would be told in by itself.
        args.out.write_text(json.dumps({"refused": error.finding.to_dict()}))
        raise SystemExit(2) from error
    if factory.topology.is_chief:
        figures = {**run.throughput.to_dict(), "num_samples": run.plan.num_samples}
        args.out.write_text(json.dumps(figures))


def factory_on(target: Any, strategy: Any) -> Any:
    """Returns the factory that a target stands for, on a strategy.

    Raises:
        FactoryError: If it is neither a `ModelFactory` class nor a function that returns a
            factory for a strategy.
    """
    factory = target(strategy) if callable(target) else target
    if isinstance(factory, ModelFactory):
        return factory
    raise FactoryError(
        Finding(
            "scale-target",
            "error",
            what=f"{getattr(target, '__name__', target)!r} gives {type(factory).__name__}, not a "
            "ModelFactory.",
            why="It is trained on several numbers of replicas, so it must be made for a strategy "
            "and bring its data.",
            fix="Name a subclass of ktk.ModelFactory that defines data(self), returning "
            "((x, y), None).",
        )
    )


def _strategy(args: argparse.Namespace) -> Any:
    if os.environ.get("TF_CONFIG", "{}") != "{}":
        return detect_strategy()
    if args.accelerator == "cpu":
        return detect_strategy(simulate=args.replicas)
    return detect_strategy(
        args.accelerator, devices=[f"GPU:{index}" for index in range(args.replicas)]
    )


if __name__ == "__main__":
    main()
