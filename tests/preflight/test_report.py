"""The report answers each question, in text, JSON and one HTML page."""

import json
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit import PreflightError, run_preflight
from keras_tpu_kit.cli import main
from keras_tpu_kit.preflight.estimate import Estimate
from keras_tpu_kit.preflight.page import page

ROWS, FEATURES, CLASSES = 640, 16, 4


def small():
    first = keras.layers.Dense(32, name="dense")
    second = keras.layers.Dense(CLASSES, name="dense_1")
    model = keras.Sequential([keras.Input((FEATURES,)), first, second], name="small")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def rows(labels=CLASSES):
    draw = np.random.default_rng(0)
    return draw.random((ROWS, FEATURES), "float32"), draw.integers(0, labels, ROWS)


@pytest.fixture(scope="module")
def report():
    return run_preflight(small, rows(), tpu="v3-8", global_batch_size=64, search=True, suggest=True)


@pytest.mark.slow
def test_a_report_answers_each_question(report):
    told = json.loads(report.to_json())

    assert told["tpu"] == "v3-8" and told["per_replica_batch_size"] == 8
    assert told["plan"]["num_samples"] == ROWS
    memory = told["memory"]
    parts = ("weights", "optimizer", "batch", "activations", "rest")
    assert memory["total"] == sum(memory[part] for part in parts) < memory["available"]
    assert told["step"]["versions"].keys() == {"jax", "jaxlib", "libtpu"}
    assert told["estimate"]["assumptions"] and 0 < told["estimate"]["mfu"] <= 1
    # TensorFlow calls the ops of the first one dense_1/MatMul.
    assert [each["layer"] for each in told["work"]] == ["layer 'dense'", "layer 'dense_1'"]
    sizes = [{each["rows"], each["depth"], each["columns"]} for each in told["work"]]
    assert sizes == [{8, FEATURES, 32}, {8, 32, CLASSES}]
    # All the rows of the data on 8 replicas are the most that is tried.
    assert told["largest_batch"]["rows"] == ROWS // 8
    assert {each["name"] for each in told["variants"]} == {
        "mixed_bfloat16", "optimizer='adafactor'", "optimizer='sgd'"
    }  # fmt: skip
    sgd = next(each for each in told["variants"] if "sgd" in each["name"])
    assert sgd["saved_bytes"] > 0
    assert told["data"]["rows"] == 64 * told["data"]["batches"]
    assert report.verdict == "The step compiles and fits on v3-8."
    report.raise_for_errors()


@pytest.mark.slow
def test_a_report_is_shown_as_text_and_as_one_page(report):
    text = str(report)
    for words in ("Memory of one replica", "Estimate", "not a measurement", "Matrix products"):
        assert words in text
    html = page(report)
    assert html.count("data:image/png;base64,") == 3
    assert report.verdict in html and not re.search(r'(src|href)="http', html)


@pytest.mark.slow
def test_types_are_compared_row_by_row_with_their_cost():
    seen = []
    report = run_preflight(
        small, rows(), tpu="all", per_replica_batch_size=8, prices={"v3-8": 8.0}, on_row=seen.append
    )

    assert [each.tpu for each in report.compared] == [each.tpu for each in seen]
    assert all(each.fits and each.samples_per_second > 0 for each in report.compared)
    cost = {each.tpu: each.cost_per_epoch for each in report.compared}
    rate = {each.tpu: each.samples_per_second for each in report.compared}
    assert cost["v3-8"] == pytest.approx(8.0 * ROWS / rate["v3-8"] / 3600)
    assert cost["v2-8"] is None
    assert "TPU types" in str(report)


def codes(report):
    return {finding.code for finding in report.findings}


def test_data_and_plan_are_checked_for_gpus_too():
    x, y = rows(labels=CLASSES)
    x[3, 2] = np.nan

    report = run_preflight(small, (x, y), tpu="gpu-4", global_batch_size=64)

    assert "data-not-finite" in codes(report) and report.step is None
    with pytest.raises(PreflightError, match="NaN"):
        report.raise_for_errors()
    uneven = run_preflight(small, rows(), tpu="gpu-4", global_batch_size=66)
    assert "batch-not-divisible" in codes(uneven)


def test_what_a_remote_tpu_cannot_read_is_named(tmp_path):
    path = str(tmp_path / "rows.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"row")
    dataset = (
        tf.data.TFRecordDataset(path)
        .map(lambda row: (tf.zeros(FEATURES), 0))
        .batch(64, drop_remainder=True)
    )
    python = tf.data.Dataset.from_generator(
        lambda: iter([(np.zeros(FEATURES), 0)]),
        output_signature=(tf.TensorSpec((FEATURES,)), tf.TensorSpec((), tf.int32)),
    ).batch(64, drop_remainder=True)
    options = {"tpu": "cpu", "num_samples": 64}

    class Talks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            pass

    kept = keras.callbacks.ModelCheckpoint(str(tmp_path / "best.keras"))

    here = run_preflight(small, dataset, **options)
    assert not {"local-files", "python-in-dataset", "callback-stops-device"} & codes(here)
    there = run_preflight(small, dataset, remote=True, callbacks=[Talks(), kept], **options)
    assert {"local-files", "callback-stops-device"} <= codes(there)
    told = " ".join(finding.what for finding in there.findings)
    assert "rows.tfrecord" in told and "best.keras" in told and "Talks" in told
    assert "python-in-dataset" in codes(run_preflight(small, python, remote=True, **options))


@pytest.mark.slow
def test_a_saved_model_is_examined_in_other_precision_too(tmp_path):
    path = tmp_path / "model.keras"
    small().save(path)

    report = run_preflight(path, tpu="v3-8", per_replica_batch_size=8, suggest=True)

    assert report.step is not None and report.rows == 8
    variant = next(each for each in report.variants if each.name == "mixed_bfloat16")
    assert variant.needed_bytes is not None


def test_labels_beyond_the_outputs_are_named():
    report = run_preflight(small, rows(labels=9), tpu="v3-8", global_batch_size=64)
    assert "labels-out-of-range" in codes(report)


def test_an_input_that_is_too_slow_is_named():
    import time

    def slow():
        for _ in range(64):
            time.sleep(0.01)
            yield np.zeros((64, FEATURES), "float32"), np.zeros(64, "int32")

    spec = (tf.TensorSpec((64, FEATURES)), tf.TensorSpec((64,), tf.int32))
    dataset = tf.data.Dataset.from_generator(slow, output_signature=spec)

    def wide():
        model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(4096)])
        model.add(keras.layers.Dense(4096))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    report = run_preflight(wide, dataset, tpu="v3-8", num_samples=64 * 64)
    assert "input-bound" in codes(report)
    # Nobody knows the pace of steps this short.
    assert "input-bound" not in codes(
        run_preflight(small, dataset, tpu="v3-8", num_samples=64 * 64)
    )


def test_a_label_that_the_loss_leaves_out_is_no_fault():
    x, y = rows()
    y[5] = -1

    def segments():
        model = small()
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(ignore_class=-1))
        return model

    assert "labels-out-of-range" not in codes(
        run_preflight(segments, (x, y), tpu="v3-8", global_batch_size=64)
    )
    wrong = run_preflight(small, (x, y), tpu="v3-8", global_batch_size=64)
    (finding,) = [each for each in wrong.findings if each.code == "labels-out-of-range"]
    assert "or 4 outputs" not in finding.fix


class Focal(keras.losses.Loss):
    """Takes integers, and its name does not say so."""

    def call(self, y_true, y_pred):
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def focal():
    model = small()
    model.compile("adam", Focal())
    return model


def eager():
    model = small()
    model.compile("adam", "sparse_categorical_crossentropy", run_eagerly=True)
    return model


def open_time():
    model = keras.Sequential([keras.Input((None, 12)), keras.layers.LSTM(8)])
    model.compile("adam", "mse")
    return model


def stateful():
    layers = [keras.Input(batch_shape=(16, 5, 8)), keras.layers.LSTM(8, stateful=True)]
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


@pytest.mark.parametrize(
    ("model", "code"),
    [(focal, "labels-guessed"), (eager, "eager-on-tpu"), (open_time, "shape-not-static")],
)
def test_what_a_model_without_data_leaves_open_is_named(model, code):
    report = run_preflight(model, tpu="v3-8")
    assert code in codes(report)
    assert report.has_errors


def test_a_model_for_one_size_of_batch_is_examined_with_it():
    report = run_preflight(stateful, tpu="v3-8")
    assert report.rows == 16 and report.step is not None


class Noisy(keras.layers.Layer):
    """Draws from the generator that all of Keras shares, which no layer owns."""

    def call(self, inputs):
        return inputs + keras.random.normal(keras.ops.shape(inputs))


class TwoOptimizers(keras.Sequential):
    def compile(self, **kwargs):
        super().compile(**kwargs)
        self.other = keras.optimizers.Adam()

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.other.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


def test_variables_that_the_model_does_not_list_are_part_of_the_step():
    def noisy():
        model = keras.Sequential([keras.Input((FEATURES,)), Noisy(), keras.layers.Dense(CLASSES)])
        model.compile("sgd", "mse")
        return model

    def own():
        model = TwoOptimizers([keras.Input((FEATURES,)), keras.layers.Dense(256)])
        model.compile(loss="mse")
        return model

    assert run_preflight(noisy, tpu="v3-8").step is not None
    memory = run_preflight(own, tpu="v3-8").memory
    # Adam's two slots of a kernel of 16 x 256 and a bias, in tiles of 8 x 128.
    assert memory.optimizer >= 2 * 4 * (16 * 256 + 256)


def test_an_error_in_a_layer_names_the_layer_and_what_it_said():
    class Culprit(keras.layers.Layer):
        def call(self, inputs):
            return keras.ops.convert_to_tensor(np.asarray(inputs))

    def numpy_inside():
        layers = [keras.layers.Dense(8), Culprit(name="culprit"), keras.layers.Dense(CLASSES)]
        model = keras.Sequential(layers)
        model.compile("adam", "mse")
        return model

    x, _ = rows()
    report = run_preflight(numpy_inside, (x, x[:, :CLASSES]), tpu="v3-8", global_batch_size=64)
    (finding,) = [each for each in report.findings if each.code == "numpy-in-step"]
    assert "layer 'culprit'" in finding.what
    assert "Unable to automatically build" not in finding.what

    def narrow():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(CLASSES)])
        model.compile("adam", "mse")
        return model

    report = run_preflight(narrow, (x, x[:, :CLASSES]), tpu="v3-8", global_batch_size=64)
    (finding,) = [each for each in report.findings if each.code == "step-not-traced"]
    assert "expected" in finding.what and "Exception encountered" not in finding.what
    assert "\x1b" not in str(report.to_json())


def test_an_estimate_is_the_slower_of_the_two_roofs():
    facts = {"rows": 8, "num_replicas": 4, "flops": 1e9, "bytes_accessed": 1e6,
             "peak_flops": 1e12, "peak_bandwidth": 1e9, "gradient_bytes": 4,
             "has_loops": False}  # fmt: skip
    one = Estimate(**facts)
    assert (one.bound, one.step_seconds) == ("compute", 1e-3)
    other = Estimate(**{**facts, "bytes_accessed": 4e6})
    assert (other.bound, other.step_seconds, other.mfu) == ("memory", 4e-3, 0.25)
    assert other.samples_per_second == 8 * 4 / 4e-3


@pytest.mark.slow
def test_the_command_writes_json_and_a_page(tmp_path, capsys):
    path = tmp_path / "report.html"

    code = main(["preflight", "--demo", "--tpu", "v3-8", "--json", "--html", str(path)])

    told = json.loads(capsys.readouterr().out)
    assert code == 0 and told["tpu"] == "v3-8" and told["plan"]["num_samples"] == 60_000
    assert "<img" in path.read_text()
