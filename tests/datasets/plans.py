"""Short ways to a plan and to a dataset's first batches."""

from __future__ import annotations

from keras_tpu_kit import BatchPlan, Topology, plan_batches


def plan_of(num_samples, batch, replicas=1, workers=1, worker=0, validation=0) -> BatchPlan:
    """Returns a plan on CPUs."""
    topology = Topology(
        accelerator="cpu", num_replicas=replicas, num_workers=workers, worker_index=worker
    )
    return plan_batches(
        topology,
        num_samples=num_samples,
        global_batch_size=batch,
        num_validation_samples=validation,
    )


def batches(dataset, count):
    """Returns the first batches of a dataset as NumPy."""
    return list(dataset.take(count).as_numpy_iterator())
