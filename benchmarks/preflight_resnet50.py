"""ResNet50 at 224 x 224 with Adam on one TPU core, by the TPU compiler alone.

Prints what docs/preflight.md reports: which batches fit, the largest that does with the proof that
the next multiple of 8 does not, and the same in mixed_bfloat16. Takes a quarter of an hour to an
hour on two cores, and no TPU.

    python benchmarks/preflight_resnet50.py --tpu v2-8
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

from keras_tpu_kit.preflight.examination import Examination, How
from keras_tpu_kit.preflight.subject import Subject
from keras_tpu_kit.tpu_compiler import find_compiler
from keras_tpu_kit.tpu_types import tpu_type


def resnet50() -> keras.Model:
    """Returns the compiled model."""
    model = keras.applications.ResNet50(weights=None, input_shape=(224, 224, 3), classes=1000)
    model.compile(keras.optimizers.Adam(), "sparse_categorical_crossentropy")
    return model


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tpu", default="v2-8")
    parser.add_argument("--timeout", type=float, default=3600.0)
    parser.add_argument("--json", default=None, help="also write the figures to this file")
    args = parser.parse_args()
    tpu = tpu_type(args.tpu)
    how = How(compiler=find_compiler(), timeout=args.timeout, use_cache=True, progress=print)
    subject = Subject(resnet50, tpu.topology)
    batch = (tf.TensorSpec((None, 224, 224, 3)), tf.TensorSpec((None,), "int32"))
    examination = Examination(subject, batch, tpu, how)
    figures: dict[str, object] = {"tpu": args.tpu}
    for policy in ("float32", "mixed_bfloat16"):
        model = subject.model(precision=policy)
        started = time.perf_counter()
        tries = [examination.tried(rows, model)[0] for rows in (64, 512)]
        largest = examination.largest(512, model=model)
        figures[policy] = {
            "tries": [(t.rows, t.needed_bytes, t.fits) for t in (*tries, *largest.tries)],
            "largest": largest.rows,
            "refused": largest.refused,
            "seconds": time.perf_counter() - started,
        }
        print(policy, json.dumps(figures[policy]), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
