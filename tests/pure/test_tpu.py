"""TPU types, and the rules on TPUs: what is right passes, what is wrong is named and cured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit.checks import compiler, refusals, tpu
from keras_tpu_kit.errors import HardwareError
from keras_tpu_kit.throughput import CHIPS
from keras_tpu_kit.tpu_types import COMPARED, tpu_type

SIZES = st.integers(1, 2000)


@pytest.mark.parametrize(
    ("name", "chips", "replicas", "chip"),
    [
        ("v2-8", 4, 8, "TPU v2"),
        ("v3-8", 4, 8, "TPU v3"),
        ("v3-32", 16, 32, "TPU v3"),
        ("v4-8", 4, 4, "TPU v4"),
        ("v5litepod-1", 1, 1, "TPU v5e"),
        ("V5e-8", 8, 8, "TPU v5e"),
        ("v5p-8", 4, 4, "TPU v5p"),
        ("v6e-1", 1, 1, "TPU v6e"),
        ("v6e-8", 8, 8, "TPU v6e"),
    ],
)
def test_a_type_says_its_chips_and_replicas(name, chips, replicas, chip):
    found = tpu_type(name)
    assert (found.num_chips, found.num_replicas, found.chip) == (chips, replicas, CHIPS[chip])
    assert found.topology.num_replicas == replicas and found.topology.accelerator == "tpu"


@pytest.mark.parametrize("name", ["v9-8", "v3", "v3-7", "tpu", ""])
def test_an_unknown_type_lists_the_known_ones(name):
    with pytest.raises(HardwareError) as caught:
        tpu_type(name)
    assert all(known in caught.value.finding.fix for known in (*COMPARED, "v5litepod-1"))


# check, arguments that are right, then (arguments that are wrong, the code).
RULES = [
    (
        tpu.check_padding,
        [
            {"layer": "a", "rows": 128, "depth": 128, "columns": 128, "flops_share": 1.0},
            {"layer": "a", "rows": 128, "depth": 16, "columns": 16, "flops_share": 1.0},
            {"layer": "a", "rows": 512, "depth": 16, "columns": 16, "flops_share": 0.01},
        ],
        [
            (
                {"layer": "a", "rows": 512, "depth": 16, "columns": 16, "flops_share": 0.5},
                "tpu-padding",
            ),
            (
                {"layer": "a", "rows": 1, "depth": 1024, "columns": 1024, "flops_share": 0.5},
                "tpu-padding",
            ),
        ],
    ),
    (tpu.check_float64, [{"layers": []}], [({"layers": ["a"]}, "float64-emulated")]),
    (
        tpu.check_dynamic_shapes,
        [{"layers": []}],
        [({"layers": ["a", "b", "c", "d"]}, "dynamic-shape")],
    ),
    (
        tpu.check_matrix_dtype,
        [{"float32_share": 0.4}],
        [({"float32_share": 1.0}, "float32-products")],
    ),
    (
        tpu.check_static_shape,
        [{"column": "x", "shape": (8, 3)}, {"column": "y", "shape": ()}],
        [
            ({"column": "x", "shape": (None, 3)}, "shape-not-static"),
            ({"column": "x", "shape": (8, None)}, "shape-not-static"),
        ],
    ),
    (
        tpu.check_price,
        [{"name": "v3-8", "price": 0.0, "rows": ["v3-8"], "has_row": True}],
        [
            (
                {"name": "v3-8", "price": -1.0, "rows": ["v3-8"], "has_row": True},
                "price-unreadable",
            ),
            (
                {"name": "v3-8", "price": math.nan, "rows": ["v3-8"], "has_row": True},
                "price-unreadable",
            ),
            ({"name": "v3-8", "price": 8.0, "rows": [], "has_row": False}, "price-unused"),
        ],
    ),
    (
        tpu.check_prices,
        [{"priced": [], "num_samples": None}, {"priced": ["v3-8"], "num_samples": 10}],
        [({"priced": ["v3-8"], "num_samples": None}, "cost-needs-rows")],
    ),
    (
        tpu.check_input_rate,
        [
            {"delivered": 10.0, "consumed": 10.0, "step_seconds": 1.0},
            {"delivered": 1.0, "consumed": math.inf, "step_seconds": 1.0},
            {"delivered": 1.0, "consumed": 10.0, "step_seconds": 1e-5},
        ],
        [({"delivered": 1.0, "consumed": 10.0, "step_seconds": 1.0}, "input-bound")],
    ),
    (
        tpu.check_finite,
        [{"column": "x", "rows_bad": 0, "rows_seen": 8}],
        [({"column": "x", "rows_bad": 1, "rows_seen": 8}, "data-not-finite")],
    ),
    (
        tpu.check_labels,
        [{"lowest": 0, "highest": 9, "classes": 10}],
        [
            ({"lowest": 1, "highest": 10, "classes": 10}, "labels-out-of-range"),
            ({"lowest": -1, "highest": 9, "classes": 10}, "labels-out-of-range"),
        ],
    ),
    (
        tpu.check_remote_files,
        [{"paths": [], "is_remote": True}, {"paths": ["/a"], "is_remote": False}],
        [({"paths": ["/a"], "is_remote": True}, "local-files")],
    ),
    (
        tpu.check_remote_python,
        [
            {"uses_python": True, "is_remote": False},
            {"uses_python": False, "is_remote": True},
        ],
        [({"uses_python": True, "is_remote": True}, "python-in-dataset")],
    ),
    (
        tpu.check_batch_hooks,
        [{"callbacks": []}],
        [({"callbacks": ["Logger"]}, "callback-stops-device")],
    ),
    (
        tpu.check_tensorflow_for_tpu,
        [{"wheels": []}, {"wheels": [("tensorflow-tpu", "2.19.1")]}],
        [
            ({"wheels": [("tensorflow", "2.21.0")]}, "tensorflow-not-for-tpu"),
            (
                {"wheels": [("tensorflow", "2.21.0"), ("tensorflow-tpu", "2.19.1")]},
                "tensorflow-twice",
            ),
        ],
    ),
    (
        compiler.check_compiler_platform,
        [
            {"system": "linux", "machine": "x86_64"},
            {"system": "linux", "machine": "AMD64"},
        ],
        [
            ({"system": "darwin", "machine": "arm64"}, "compiler-not-for-platform"),
            ({"system": "linux", "machine": "aarch64"}, "compiler-not-for-platform"),
        ],
    ),
    (
        compiler.check_compiler_versions,
        [
            dict(zip(("jax", "jaxlib", "libtpu"), versions, strict=True))
            for versions in compiler.TESTED
        ],
        [
            ({"jax": None, "jaxlib": "1", "libtpu": None}, "compiler-missing"),
            ({"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.10"}, "compiler-versions"),
        ],
    ),
    (
        compiler.check_timeout,
        [{"seconds": 0.1}],
        [
            ({"seconds": 0.0}, "timeout-not-positive"),
            ({"seconds": math.nan}, "timeout-not-positive"),
        ],
    ),
]

WRONG = [(check, wrong, code) for check, _, cases in RULES for wrong, code in cases]


@pytest.mark.parametrize(
    ("check", "right"), [(check, right) for check, cases, _ in RULES for right in cases]
)
def test_what_is_right_passes(check, right):
    assert check(**right) is None


@pytest.mark.parametrize(("check", "wrong", "code"), WRONG)
def test_what_is_wrong_is_named_and_each_cure_passes(check, wrong, code):
    finding = check(**wrong)
    assert finding.code == code
    for cure in finding.cures:
        assert check(**{**wrong, **cure}) is None


@given(SIZES, SIZES, SIZES)
def test_padding_is_a_share_and_none_where_tiles_are_full(rows, depth, columns):
    assert 0 <= tpu.padding_waste(rows, depth, columns) < 1
    assert tpu.padding_waste(rows * 128, depth * 128, columns * 128) == 0


@pytest.mark.parametrize(
    ("stage", "message", "code"),
    [
        ("bridge", "No registered 'PyFunc' OpKernel", "python-in-step"),
        ("bridge", "No registered 'LookupTableFindV2' OpKernel", "lookup-in-model"),
        ("bridge", "No registered 'StringFormat' OpKernel", "string-in-step"),
        ("bridge", "No registered 'RaggedTensorToTensor' OpKernel", "ragged-in-model"),
        ("bridge", "No registered 'DecodeJpeg' OpKernel", "host-op-in-step"),
        ("bridge", "No registered 'SparseReshape' OpKernel", "sparse-in-model"),
        ("bridge", "No registered 'Bincount' OpKernel", "unsupported-op"),
        ("bridge", "with op Range must be a compile-time constant", "shape-depends-on-data"),
        ("bridge", "a shape must be a compile-time constant", "shape-depends-on-data"),
        ("bridge", "requires a fixed tensor list size", "loop-of-unknown-length"),
        ("bridge", "x" * 500, "step-not-compiled"),
        ("compiler", "", "step-not-compiled"),
        ("trace", "Cannot convert a symbolic tf.Tensor (a/b:0) to a numpy array", "numpy-in-step"),
        ("trace", "Using a symbolic `tf.Tensor` as a Python `bool`", "python-value-in-step"),
        ("trace", "anything else", "step-not-traced"),
    ],
)
@pytest.mark.parametrize("layer", [None, "layer 'words'"])
def test_a_refusal_is_explained(stage, message, code, layer):
    finding = refusals.explain_refusal(stage, message, layer=layer, where="model.py:3 in call")
    assert finding.code == code and finding.severity == "error"
    assert layer is None or layer in finding.what
    assert len(finding.what) < 400


@pytest.mark.parametrize(
    ("message", "layer"),
    [
        ("{{node model_1/words_2/Find}}", "layer 'words'"),
        ("node `model/block/words/Range` with op", "layer 'words'"),
        ("{{node gradient_tape/model/words/mul}}", "layer 'words'"),
        ("{{node model_1/dense_1/MatMul}}", "layer 'dense'"),
        ("{{node model_1/dense_1_2/MatMul}}", "layer 'dense_1'"),
        ("symbolic (compile_loss/loss/sub:0)", "the loss"),
        ("{{node compile_metrics/mean/x}}", "a metric"),
        ("{{node elsewhere/x}}", None),
        ("nothing", None),
    ],
)
def test_a_message_names_its_layer(message, layer):
    assert refusals.layer_of(message, ["words", "block", "dense", "dense_1"]) == layer


def test_memory_is_told_in_the_compilers_units():
    assert refusals.memory_figures("nothing of the kind") is None
    assert refusals.memory_figures("(1.50M) exceeds available HBM (512)") == (3 * 2**19, 512)
    late = "E1000: Ran out of memory in memory space hbm. Used 1.50M of 512 hbm. Exceeded hbm"
    assert refusals.memory_figures(late) == (3 * 2**19, 512)
    told = [refusals.gigabytes(size) for size in (12, 2**10, 2**20, 2**30)]
    assert told == ["12 bytes", "1.0 KiB", "1.0 MiB", "1.00 GiB"]
    assert refusals.op_of("no op") is None


@pytest.mark.parametrize(
    ("finding", "code", "words"),
    [
        (refusals.step_exceeds_memory(2**33, 2**32), "step-exceeds-memory", "8.00 GiB"),
        (refusals.text_in_batch("x", "layer 'words'"), "text-in-batch", "x holds"),
        (refusals.text_in_batch("y", None), "text-in-batch", "nothing reads it"),
        (tpu.largest_batch(8, 16, 8), "largest-batch", "64 in all"),
        (tpu.largest_batch(8, None, 8), "largest-batch", "64 in all"),
        (tpu.nothing_fits(2**33, 2**32, "v2-8"), "model-exceeds-replica", "v2-8"),
        (tpu.largest_batch(8, 64, 8), "largest-batch", "64 in all"),
        (compiler.no_interpreter("p", "why"), "compiler-python", "why"),
        (compiler.compiler_timed_out("v2-8", 5), "compiler-timeout", "5 s"),
        (compiler.compiler_died("v2-8", "was killed", "\nlast\n\n"), "compiler-killed", "v2-8"),
        (compiler.compiler_died("v2-8", "was killed", ""), "compiler-killed", "v2-8"),
        (compiler.compiler_broken({"jax": "1"}, "parse", "a\nb"), "compiler-broken", "a."),
        (compiler.compiler_broken({"jax": "1"}, "parse", ""), "compiler-broken", "no message"),
    ],
)
def test_what_is_found_is_told(finding, code, words):
    assert finding.code == code and words in finding.what


def test_what_lies_between_the_fitting_and_the_refused_is_not_called_tried():
    assert tpu.largest_batch(8, 16, 8).why.endswith("16 is refused.")
    assert "between was not tried" in tpu.largest_batch(8, 64, 8).why


def test_the_line_of_a_message_that_says_something_is_its_headline():
    called = "ValueError: Exception encountered when calling Noisy.call()."
    assert refusals.headline(f"{called}\n\nOf rank 3\n\nArguments") == "ValueError: Of rank 3"
    assert refusals.headline(called) == called
    assert refusals.headline("first\nsecond") == "first"
    assert refusals.headline("") == "no message"
    assert refusals.called_class(called) == "Noisy"
    assert refusals.called_class("first") is None
