"""Each example has twins with one fault, which preflight names where the example itself passes."""

import broken_twins
import pytest
from conftest import EXAMPLES

from keras_tpu_kit.preflight import run_preflight

# example, twin, code, what the finding names, a word of its cure
IN_THE_MODEL = [
    ("mnist", "PythonInDigits", "python-in-step", ("EagerPyFunc", "layer 'scaled'"), "keras.ops"),
    ("resnet50", "FilesInResNet50", "text-in-batch", ("x holds", "layer 'decoded'"), "decode_jpeg"),
    (
        "translation",
        "WordsInTranslator",
        "lookup-in-model",
        ("LookupTableFindV2", "layer 'numbers'"),
        "dataset.map(lambda x, y: (lookup(x), y))",
    ),
    (
        "recurrent",
        "WordByWordRecurrent",
        "shape-depends-on-data",
        ("op Range", "layer 'cut'"),
        "tf.sequence_mask",
    ),
]


@pytest.mark.parametrize(("example", "twin", "code", "named", "cure"), IN_THE_MODEL)
def test_a_fault_in_the_model_is_named_by_layer_and_cause(example, twin, code, named, cure):
    told = []

    report = run_preflight(
        getattr(broken_twins, twin), tpu="v2-8", per_replica_batch_size=8, progress=told.append
    )

    errors = [each for each in report.findings if each.severity == "error"]
    assert [each.code for each in errors] == [code]
    for part in named:
        assert part in errors[0].what
    assert cure in errors[0].fix
    assert report.step is None and report.original
    assert report.verdict == f"Not ready: {errors[0].what}"
    # TensorFlow knows already, so nobody waits for the compiler.
    assert not any("compiling" in line for line in told)


IN_THE_DATA = [
    ("resnet50", "UncroppedResNet50", {"Axis 1 of x"}, "padded_shapes"),
    (
        "translation",
        "UnpaddedTranslator",
        {"Axis 1 of x['source']", "Axis 1 of x['shifted']", "Axis 1 of y"},
        "padded_shapes",
    ),
    (
        "recurrent",
        "RaggedRecurrent",
        {"Axis 1 of x['source']", "Axis 1 of x['shifted']"},
        "padded_batch",
    ),
]


@pytest.mark.parametrize(("example", "twin", "axes", "cure"), IN_THE_DATA)
def test_a_fault_in_the_data_is_named_by_column_and_axis(example, twin, axes, cure):
    report = run_preflight(getattr(broken_twins, twin), tpu="v2-8", num_samples=64)

    found = [each for each in report.findings if each.code == "shape-not-static"]
    assert {each.what.partition(" has no")[0] for each in found} == axes
    assert all(each.severity == "error" and cure in each.fix for each in found)
    assert report.step is None and report.has_errors


def test_each_example_has_a_twin_that_differs_from_it_by_one_fault():
    for example, twin, *_ in (*IN_THE_MODEL, *IN_THE_DATA):
        assert issubclass(getattr(broken_twins, twin), EXAMPLES[example])
    assert {example for example, *_ in IN_THE_MODEL} == set(EXAMPLES)
