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
    report = run_preflight(small, dataset, tpu="v3-8", num_samples=64 * 64)
    assert "input-bound" in codes(report)


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
