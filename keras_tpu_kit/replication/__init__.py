"""What one step does on every replica, and how many steps run per call.

`replicate(model)` overrides four methods of that one model. Before training, everything is
built from the data's own shapes (`preparation`). The train and test functions run the model's
own step on every replica, `steps_per_execution` times in one graph (`execution`). Inside such a
step, and nowhere else, a handful of Keras functions behave as they would on one device that
holds this replica's rows (`hooks`), and the replicas meet in four places: losses whose mean is
not over rows (`losses`), gradients before clipping (`gradients`), numbers for a whole batch in
metrics (`metrics`), and BatchNormalization (`normalization`). Each part counts by its rows
(`share`). Random numbers differ by replica (`randomness`), and one without a row keeps the shapes
of the others (`convolutions`). Replicas on a CPU keep their memory between steps (`host_memory`).
Where shapes must be static, the last batch of an evaluation is filled up and masked (`padding`). A
step of the model's own is asked before training whether it averages over rows (`custom_steps`), and
metrics of the user's own at their first update whether they add up (`own_metrics`).

This is the only place in the kit that touches Keras's trainer internals.
"""

from keras_tpu_kit.replication import convolutions, gradients, losses, metrics, randomness
from keras_tpu_kit.replication.normalization import synchronize_batch_normalization
from keras_tpu_kit.replication.notes import replication_notes
from keras_tpu_kit.replication.progress import Progress
from keras_tpu_kit.replication.replicated import is_replicated, progress, replicate, restore

__all__ = [
    "Progress",
    "is_replicated",
    "progress",
    "replicate",
    "replication_notes",
    "restore",
    "synchronize_batch_normalization",
]

# Imported for what they hook into Keras.
del convolutions, gradients, losses, metrics, randomness
