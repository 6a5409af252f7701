"""Random numbers inside a replicated step: each replica draws its own.

The generator's state stays that of one device and the same on all replicas, so that saving,
loading and seeding need nothing; only what is drawn from it differs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras.random import SeedGenerator

from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare

# The golden ratio in 32 bits: odd, so that no two of 2 ** 32 replicas coincide.
_STRIDE = 0x9E3779B9


@inside_step(SeedGenerator, "next")
def _next(share: ReplicaShare, stock: Any, generator: Any, ordered: bool = True) -> Any:
    seed = stock(generator, ordered=ordered)
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    offset = tf.cast(replica, seed.dtype) * tf.constant(_STRIDE, seed.dtype)
    return seed + tf.stack([offset, tf.zeros_like(offset)])
