"""Rules on searches, said with numbers and names."""

from __future__ import annotations

import math

import pytest

from keras_tpu_kit.checks import search as rules

pytestmark = pytest.mark.pure

LOGGED = ["loss", "accuracy", "val_loss", "val_accuracy"]


def test_open_scope():
    assert rules.check_open_scope(False) is None
    assert rules.check_open_scope(True).code == "search-in-open-scope"


@pytest.mark.parametrize(
    ("names", "has_validation", "fix"),
    [
        (["val_accuracy"], True, None),
        (["loss", "val_loss"], True, None),
        (["val_acuracy"], True, 'Use objective="val_accuracy".'),
        (["val_loss"], False, 'Pass validation_data= to search, or use objective="loss".'),
        (["zzz"], True, 'Use objective="accuracy".'),
    ],
)
def test_objective(names, has_validation, fix):
    known = LOGGED if has_validation else LOGGED[:2]
    finding = rules.check_objective(names, known, has_validation)
    assert (finding.fix if finding else None) == fix


def test_objective_where_nothing_is_logged():
    assert rules.check_objective(["x"], []).fix == "Use a name that training logs."


def test_objective_not_measured_says_what_to_do():
    assert "validation_freq" in rules.objective_not_measured("val_loss", 3).fix
    assert "two epochs" in rules.objective_not_measured("samples_per_second", 1).fix


@pytest.mark.parametrize(
    ("failed", "limit", "stops"), [(2, 3, False), (3, 3, True), (9, None, False), (0, 3, False)]
)
def test_failures_in_a_row(failed, limit, stops):
    assert (rules.check_failures(failed, limit, "boom") is not None) is stops


def test_search_without_result_tells_the_reasons():
    assert rules.check_any_finished(1, ["diverged"]) is None
    finding = rules.check_any_finished(0, ["diverged", "diverged", "infeasible"])
    assert finding.what.endswith("no finished trial out of 3.")
    assert finding.why == "2 x diverged; 1 x infeasible."
    assert rules.check_any_finished(0, []).why == "The oracle had no trial to run."


@pytest.mark.parametrize(
    ("batch", "weights", "is_short"),
    [(64, 100, True), (128, 100, True), (64, 200, True), (32, 100, False), (64, 99, False)],
)
def test_memory(batch, weights, is_short):
    assert (rules.check_memory(batch, weights, [(64, 100)]) is not None) is is_short


def test_memory_before_anything_ran_out():
    assert rules.check_memory(64, 100, []) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_hope_without_a_finite_value(value):
    assert not rules.is_hopeful(value)
    assert rules.is_hopeful(0.0)


class Never:
    def should_end(self, own, others, direction):
        return False


def test_pruner_with_hyperband():
    assert rules.check_pruner("DurableHyperbandOracle", None) is None
    assert rules.check_pruner("RandomSearchOracle", Never()) is None
    finding = rules.check_pruner("DurableHyperbandOracle", Never())
    assert finding.code == "pruner-with-hyperband"
    assert all(rules.check_pruner("HyperbandOracle", **cure) is None for cure in finding.cures)


@pytest.mark.parametrize(
    ("is_factory", "given", "is_refused"),
    [
        (True, {"optimizer": None, "loss": "mse"}, True),
        (True, {"optimizer": None, "loss": None}, False),
        (False, {"optimizer": "sgd", "loss": "mse"}, False),
    ],
)
def test_a_factory_alone_says_how_its_models_learn(is_factory, given, is_refused):
    finding = rules.check_compile_args(is_factory, given)
    assert (finding is not None) == is_refused
    if finding is not None:
        assert finding.code == "compiled-twice"
        assert "loss=" in finding.what
        assert rules.check_compile_args(is_factory, **finding.cures[0]) is None


@pytest.mark.parametrize("pruner", [Never, "median", object()])
def test_what_cannot_prune_is_no_pruner(pruner):
    finding = rules.check_pruner("RandomSearchOracle", pruner)
    assert finding.code == "pruner-unknown"
    assert all(rules.check_pruner("RandomSearchOracle", **cure) is None for cure in finding.cures)


def test_a_tuner_of_any_oracle_needs_one():
    assert rules.check_oracle(True) is None
    assert rules.check_oracle(False).code == "search-without-oracle"


@pytest.mark.parametrize(
    ("name", "takes_sizes", "fix"),
    [
        ("epochs", False, None),
        ("global_batch_size", True, None),
        ("epoch", False, "Use epochs=."),
        ("colour", True, "Leave out colour=."),
        (
            "global_batch_size",
            False,
            "Use batch_size=, rows over all replicas, or search a ktk.ModelFactory.",
        ),
    ],
)
def test_arguments_of_a_search(name, takes_sizes, fix):
    known, sizes = ["x", "epochs"], ["global_batch_size"]
    finding = rules.check_search_arguments(["x", name], known, sizes, takes_sizes)
    assert (finding and finding.fix) == fix


def test_a_search_that_was_over_says_how_to_go_on():
    finding = rules.nothing_was_left(3)
    assert finding.severity == "info"
    assert "All 3 trials" in finding.what and "max_trials" in finding.fix
