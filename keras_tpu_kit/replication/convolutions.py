"""Convolutions on a replica without a row, which TensorFlow's CPU kernels cannot compute.

oneDNN's float32 kernels hand an empty input on as it is, 0 x 8 x 8 x 2 where a 3 x 3 convolution
to 5 channels makes 0 x 6 x 6 x 5, and their gradients have no output at all. So an empty replica
convolves one row of zeros, and drops it again.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras.src.backend.tensorflow import nn

from keras_tpu_kit.replication.batches import is_on_cpu
from keras_tpu_kit.replication.hooks import inside_step
from keras_tpu_kit.replication.share import ReplicaShare


@inside_step(nn, "conv")
@inside_step(nn, "depthwise_conv")
@inside_step(nn, "separable_conv")
@inside_step(nn, "conv_transpose")
def _convolve(share: ReplicaShare, stock: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    if share.is_static or not is_on_cpu(tf.distribute.get_strategy()):
        return stock(inputs, *args, **kwargs)
    if inputs.shape[0]:
        return stock(inputs, *args, **kwargs)

    def with_rows() -> Any:
        return stock(inputs, *args, **kwargs)

    def without_a_row() -> Any:
        blank = tf.zeros([1, *tf.unstack(tf.shape(inputs))[1:]], inputs.dtype)
        blank.set_shape([1, *inputs.shape[1:]])
        return stock(blank, *args, **kwargs)[:0]

    # Two branches, since filling up every input would copy it in every step.
    return tf.cond(tf.shape(inputs)[0] > 0, with_rows, without_a_row)
