"""A finding says what, why and fix; the error that carries it survives its journeys."""

import copy
import pickle

import pytest

from keras_tpu_kit import errors
from keras_tpu_kit.errors import BackendError, Finding, KitError, PlanError

FINDING = Finding(
    "steps-not-divisible",
    "error",
    what="steps_per_epoch=8 is not a multiple of steps_per_execution=3.",
    why="Keras always finishes an execution.",
    fix="Use steps_per_epoch=6.",
    cures=({"steps_per_epoch": 6},),
)


def subclasses(cls):
    return {cls, *(leaf for child in cls.__subclasses__() for leaf in subclasses(child))}


@pytest.mark.parametrize("kind", sorted(subclasses(KitError), key=lambda cls: cls.__name__))
def test_every_error_survives_pickle_and_copy_with_its_finding(kind):
    error = kind(FINDING)
    for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(twin) is kind
        assert twin.finding == FINDING
        assert str(twin) == str(FINDING)


def test_the_text_holds_all_three_sentences_and_the_code():
    assert str(FINDING) == (
        "steps_per_epoch=8 is not a multiple of steps_per_execution=3.\n"
        "  Why: Keras always finishes an execution.\n"
        "  Fix: Use steps_per_epoch=6.  [steps-not-divisible]"
    )


@pytest.mark.parametrize("missing", ["code", "what", "why", "fix"])
def test_a_finding_without_one_of_its_texts_cannot_be_made(missing):
    texts = {"code": "c", "what": "w", "why": "y", "fix": "f", missing: "  "}
    with pytest.raises(ValueError, match=missing):
        Finding(severity="error", **texts)


def test_an_unknown_severity_cannot_be_made():
    with pytest.raises(ValueError, match="fatal"):
        Finding("c", "fatal", "w", "y", "f")


def test_a_finding_survives_a_round_trip_through_a_dict():
    assert Finding.from_dict(FINDING.to_dict()) == FINDING


def test_errors_can_be_caught_as_the_builtin_that_users_expect():
    assert issubclass(PlanError, ValueError)
    assert issubclass(BackendError, ImportError)


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    # Other modules may refine an error for their own use; users catch those that stand here.
    kinds = (kind for kind in subclasses(KitError) if kind.__module__ == errors.__name__)
    named = {kind.__name__ for kind in kinds}
    assert {name for name in named if name not in errors.__doc__} == set()
