"""The real TPU compiler on small models; its answers are kept in a folder of this run alone."""

from __future__ import annotations

import functools
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "examples")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import mnist  # noqa: E402
import recurrent  # noqa: E402
import resnet50  # noqa: E402
import translation  # noqa: E402

from keras_tpu_kit.datasets import make_dataset, plan_for_data  # noqa: E402
from keras_tpu_kit.preflight.examination import Examination, How  # noqa: E402
from keras_tpu_kit.preflight.subject import Subject  # noqa: E402
from keras_tpu_kit.tpu_compiler import find_compiler  # noqa: E402
from keras_tpu_kit.tpu_types import tpu_type  # noqa: E402

ROWS = 8


class Digits(mnist.DigitClassifier):
    """The lead example, on digits that are always there."""

    def data(self):
        import numpy as np

        draw = np.random.default_rng(0)
        return (draw.random((640, 784), "float32"), draw.integers(0, 10, 640)), None


EXAMPLES = {
    "mnist": Digits,
    "resnet50": resnet50.SmallResNet50,
    "translation": translation.Translator,
    "recurrent": recurrent.RecurrentTranslator,
}


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("KERAS_TPU_KIT_CACHE")
    os.environ["KERAS_TPU_KIT_CACHE"] = str(folder)
    yield folder
    os.environ.pop("KERAS_TPU_KIT_CACHE")
    if before is not None:
        os.environ["KERAS_TPU_KIT_CACHE"] = before


@functools.cache
def examination_of(name: str) -> Examination:
    """Returns the examination of an example with small batches."""
    keras.utils.set_random_seed(0)
    tpu = tpu_type("v2-8")
    subject = Subject(EXAMPLES[name], tpu.topology)
    train, _ = subject.data()
    plan = plan_for_data(tpu.topology, train, per_replica_batch_size=ROWS)
    spec = make_dataset(train, plan).element_spec
    how = How(compiler=find_compiler(), timeout=600, use_cache=True, progress=lambda text: None)
    return Examination(subject, spec, tpu, how)


@pytest.fixture
def examine():
    return examination_of
