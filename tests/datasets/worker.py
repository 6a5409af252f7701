"""One of two workers: prints the rows that TensorFlow hands it, step by step, as JSON."""

from __future__ import annotations

import json
import os
import sys


def main(index: int, ports: list[str]) -> None:
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": cluster, "task": {"type": "worker", "index": index}}
    )
    import numpy as np
    import tensorflow as tf

    from keras_tpu_kit.datasets import make_dataset
    from tests.datasets.plans import plan_of

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    plan = plan_of(40, 8, replicas=2, workers=2, worker=index, validation=19)
    sources = {
        "arrays": (np.arange(40), np.arange(19)),
        "rows": (tf.data.Dataset.range(40), tf.data.Dataset.range(19)),
        "batches": (tf.data.Dataset.range(40).batch(8), tf.data.Dataset.range(19).batch(5)),
    }

    def read(dataset: tf.data.Dataset, steps: int) -> list[list[int]]:
        iterator = iter(strategy.experimental_distribute_dataset(dataset))
        parts = [strategy.experimental_local_results(next(iterator)) for _ in range(steps)]
        return [[int(row) for row in part[0]] for part in parts]

    rows = {
        name: (
            read(make_dataset(train, plan, seed=5), 10),
            read(make_dataset(valid, plan, training=False), plan.validation_steps),
        )
        for name, (train, valid) in sources.items()
    }
    sys.stdout.write("rows:" + json.dumps(rows))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
