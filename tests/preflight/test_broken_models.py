"""Each broken model gets the true verdict: refused with layer and cure, or accepted with advice."""

import broken_models
import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.preflight import run_preflight
from keras_tpu_kit.preflight.batch import batch_of_model, with_rows
from keras_tpu_kit.preflight.subject import Subject
from keras_tpu_kit.tpu_compiler import StepRefusedError
from keras_tpu_kit.tpu_compiler.lowering import lower_step
from keras_tpu_kit.tpu_types import tpu_type

# model, code, what the finding names, a word of its cure.
REFUSED = [
    ("string_lookup", "lookup-in-model", ("layer 'words'", "LookupTableFindV2"), "dataset.map"),
    ("table_lookup", "lookup-in-model", ("layer 'codes'", "LookupTableFindV2"), "dataset.map"),
    ("py_function", "python-in-step", ("layer 'through_python'", "EagerPyFunc"), "keras.ops"),
    ("numpy_function", "python-in-step", ("layer 'through_numpy'", "PyFunc"), "keras.ops"),
    ("data_dependent_shape", "shape-depends-on-data", ("layer 'shortens'", "Range"), "mask"),
    ("unbounded_loop", "loop-of-unknown-length", ("layer 'halves'",), "maximum_iterations"),
    ("ragged_inside", "ragged-in-model", ("layer 'raggeds'", "RaggedTensorToTensor"), "Pad"),
    ("printing", "string-in-step", ("layer 'shows'", "StringFormat"), "tf.print"),
    ("image_file", "host-op-in-step", ("layer 'decodes'", "EncodeJpeg"), "dataset.map"),
    ("numpy_in_loss", "numpy-in-step", ("the loss", "broken_models.py"), "keras.ops.mean"),
    ("python_value_in_loss", "python-value-in-step", ("broken_models.py",), "keras.ops.maximum"),
]


@pytest.mark.parametrize(("name", "code", "named", "cure"), REFUSED)
def test_what_no_tpu_can_run_is_refused_by_layer_and_op(name, code, named, cure):
    subject = Subject(getattr(broken_models, name), tpu_type("v3-8").topology)
    model = subject.model()
    batch = with_rows(batch_of_model(model), 8)
    if "loss" in name:
        batch = (batch[0], tf.TensorSpec((8, 1), tf.float32))

    with pytest.raises(StepRefusedError) as caught:
        subject.build(model, batch)
        lower_step(model, batch)

    finding = caught.value.finding
    assert (finding.code, finding.severity) == (code, "error")
    for part in named:
        assert part in finding.what
    assert cure in finding.fix
    assert caught.value.original


# What the compiler accepts, and the advice that is due: no more and no less.
ACCEPTED = [
    ("boolean_mask", {"dynamic-shape": "layer 'keeps_positive'"}),
    ("unique", {"dynamic-shape": "layer 'counts'"}),
    ("bounded_loop", {}),
    ("float64", {"float64-emulated": "layer 'wide'"}),
    ("narrow", {"tpu-padding": "layer 'narrow'"}),
]


@pytest.mark.parametrize(("name", "advice"), ACCEPTED)
def test_what_the_compiler_accepts_is_accepted_with_the_advice_it_needs(name, advice):
    report = run_preflight(getattr(broken_models, name), tpu="v2-8", per_replica_batch_size=8)

    assert report.step is not None and not report.has_errors
    expected = {"dynamic-shape", "float64-emulated", "tpu-padding"}
    found = {each.code: each.what for each in report.findings if each.code in expected}
    assert found.keys() == advice.keys()
    for code, place in advice.items():
        assert place in found[code]


def sequences(width):
    x = keras.Input((None, width))
    y = keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(x))
    model = keras.Model(x, y)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def rows_of_several_lengths():
    def rows():
        for length in (3, 5, 4, 6) * 16:
            yield np.ones((length, 2), "float32"), 0

    spec = (tf.TensorSpec((None, 2)), tf.TensorSpec((), tf.int32))
    return tf.data.Dataset.from_generator(rows, output_signature=spec)


def padded_batches():
    return rows_of_several_lengths().padded_batch(8, drop_remainder=True)


def open_batches():
    x, y = np.ones((60, 5, 2), "float32"), np.zeros(60, "int32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


def ragged_batches():
    x = tf.ragged.constant([[[1.0, 1.0]] * (1 + row % 3) for row in range(64)], ragged_rank=1)
    return tf.data.Dataset.from_tensor_slices((x, tf.zeros(64, tf.int32))).batch(
        8, drop_remainder=True
    )


@pytest.mark.parametrize(
    ("make", "axis", "cure"),
    [
        (padded_batches, "Axis 1 of x", "padded_shapes"),
        (open_batches, "Axis 0 of x", "drop_remainder=True"),
        (ragged_batches, "Axis 1 of x", "padded_batch"),
    ],
)
def test_data_without_one_shape_is_refused(make, axis, cure):
    report = run_preflight(lambda: sequences(2), make(), tpu="v5litepod-8", num_samples=64)

    findings = [each for each in report.findings if each.code == "shape-not-static"]
    assert findings and findings[0].severity == "error"
    assert axis in findings[0].what and cure in findings[0].fix
    assert report.step is None


def test_an_embedding_that_exceeds_a_replica_is_refused_with_the_compilers_figures():
    report = run_preflight(
        broken_models.oversize_embedding, tpu="v2-8", per_replica_batch_size=8, suggest=True
    )

    codes = {each.code for each in report.findings}
    assert {"step-exceeds-memory", "model-exceeds-replica"} <= codes
    assert "exceeds available HBM" in report.original
    # 20 million x 64 float32, Adam's two slots of the same size.
    weights = 20_000_000 * 64 * 4
    assert report.largest.rows == 0
    assert all(each.needed_bytes >= 3 * weights for each in report.largest.tries)
    saved = {each.name: each.saved_bytes for each in report.variants}
    assert saved["optimizer='sgd'"] > 1.9 * weights
    assert "ModelParallel" in next(
        each.fix for each in report.findings if each.code == "model-exceeds-replica"
    )
