"""Each rule passes what is right, names what is wrong, and proposes a cure that passes it."""

import inspect
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tpu_kit.checks import batches, data, model, steps
from keras_tpu_kit.checks.steps import INFINITE, UNKNOWN

# check, arguments that are right, then (arguments that are wrong, the code).
TABLE = [
    (
        batches.check_global_batch,
        [{"global_batch_size": 64, "num_replicas": 8}],
        [
            ({"global_batch_size": 0, "num_replicas": 8}, "batch-empty"),
            ({"global_batch_size": 5, "num_replicas": 8}, "batch-leaves-replicas-empty"),
            ({"global_batch_size": 100, "num_replicas": 8}, "batch-not-divisible"),
        ],
    ),
    (
        batches.check_batch_fits_data,
        [{"global_batch_size": 64, "num_samples": 64}],
        [
            ({"global_batch_size": 64, "num_samples": 63}, "batch-larger-than-data"),
            (
                {"global_batch_size": 64, "num_samples": 63, "num_replicas": 8},
                "batch-larger-than-data",
            ),
        ],
    ),
    (
        data.check_fit_arguments,
        [{"names": []}, {"names": ["class_weight", "epochs"]}],
        [({"names": ["epochs", "batch_size"]}, "fit-argument-decided")],
    ),
    (
        data.check_validation_split,
        [{"kind": "arrays", "num_samples": 10, "validation_split": 0.2}],
        [
            (
                {"kind": "dataset", "num_samples": 10, "validation_split": 0.2},
                "validation-split",
            ),
            ({"kind": "arrays", "num_samples": 10, "validation_split": -0.2}, "validation-split"),
            ({"kind": "arrays", "num_samples": 10, "validation_split": 1.0}, "validation-split"),
        ],
    ),
    (
        data.check_targets,
        [
            {"columns": ["x", "y"], "takes_targets": True},
            {"columns": ["x['a']", "y['b']"], "takes_targets": True},
            {"columns": ["x"], "takes_targets": False},
            {"columns": [], "takes_targets": True},
        ],
        [({"columns": ["x[0]", "x[1]"], "takes_targets": True}, "targets-missing")],
    ),
    (
        batches.check_rows_dropped,
        [{"num_samples": 60_000, "global_batch_size": 1_200, "nearest_batch_size": 1_200}],
        [
            (
                {"num_samples": 1000, "global_batch_size": 300, "nearest_batch_size": 250},
                "rows-dropped",
            ),
        ],
    ),
    (
        batches.check_ragged_batch,
        [{"batch_rows": 36, "num_replicas": 4}],
        [
            ({"batch_rows": 37, "num_replicas": 4}, "batch-uneven"),
            ({"batch_rows": 3, "num_replicas": 4}, "batch-uneven"),
        ],
    ),
    (
        batches.check_epoch_rows,
        [{"rows": 40, "steps": 2, "num_replicas": 4}],
        [
            ({"rows": 37, "steps": 2, "num_replicas": 4}, "epoch-uneven"),
            ({"rows": 4, "steps": 2, "num_replicas": 4}, "epoch-uneven"),
        ],
    ),
    (
        batches.check_first_validation_batch,
        [{"batch_rows": 32, "num_replicas": 4}],
        [
            ({"batch_rows": 30, "num_replicas": 4}, "validation-batch-uneven"),
            ({"batch_rows": 3, "num_replicas": 4}, "validation-batch-uneven"),
        ],
    ),
    (
        batches.check_tpu_batch,
        [{"per_replica_batch_size": 8}, {"per_replica_batch_size": 128}],
        [
            ({"per_replica_batch_size": 5}, "tpu-batch-padding"),
            ({"per_replica_batch_size": 150}, "tpu-batch-padding"),
        ],
    ),
    (
        steps.check_steps_per_execution,
        [
            {"steps_per_epoch": 8, "steps_per_execution": 4},
            {"steps_per_epoch": 8, "steps_per_execution": 3, "ends_with_data": True},
        ],
        [
            ({"steps_per_epoch": 8, "steps_per_execution": 0}, "steps-per-execution-empty"),
            ({"steps_per_epoch": 8, "steps_per_execution": 3}, "steps-not-divisible"),
            ({"steps_per_epoch": 3, "steps_per_execution": 8}, "steps-not-divisible"),
        ],
    ),
    (
        steps.check_cardinality,
        [
            {"cardinality": 5, "steps_per_epoch": 5, "epochs": 3},
            {"cardinality": 5, "steps_per_epoch": None, "epochs": 3},
            {"cardinality": INFINITE, "steps_per_epoch": 9, "epochs": 3},
            {"cardinality": UNKNOWN, "steps_per_epoch": None},
        ],
        [
            ({"cardinality": 0, "steps_per_epoch": 5}, "dataset-empty"),
            ({"cardinality": INFINITE, "steps_per_epoch": None}, "steps-missing"),
            ({"cardinality": 5, "steps_per_epoch": 0}, "steps-empty"),
            ({"cardinality": UNKNOWN, "steps_per_epoch": 5}, "steps-unknown"),
            ({"cardinality": 5, "steps_per_epoch": 10}, "steps-exceed-data"),
            ({"cardinality": 5, "steps_per_epoch": 3, "epochs": 3}, "steps-exceed-data"),
            ({"cardinality": 30, "steps_per_epoch": 10, "epochs": 3}, "steps-leave-data"),
            ({"cardinality": 5, "steps_per_epoch": 3, "epochs": 1}, "steps-leave-data"),
        ],
    ),
    (
        steps.check_array_steps,
        [
            {"num_samples": 60_000, "steps_per_epoch": 50, "batch_size": None},
            {"num_samples": 1_000, "steps_per_epoch": 32, "batch_size": 32},
            {"num_samples": 1_000, "steps_per_epoch": None, "batch_size": 32},
        ],
        [
            ({"num_samples": 0, "steps_per_epoch": None, "batch_size": 32}, "dataset-empty"),
            ({"num_samples": 9, "steps_per_epoch": 0, "batch_size": 32}, "steps-empty"),
            ({"num_samples": 1_000, "steps_per_epoch": 50, "batch_size": 32}, "steps-not-data"),
            ({"num_samples": 1_000, "steps_per_epoch": 9, "batch_size": 32}, "steps-not-data"),
            # 101 rows in 50 steps are batches of 3, of which there are 34.
            ({"num_samples": 101, "steps_per_epoch": 50, "batch_size": None}, "steps-not-data"),
        ],
    ),
    (
        steps.check_rows_seen,
        [{"expected": 640, "seen": 640}],
        [
            ({"expected": 640, "seen": 600}, "rows-not-consumed"),
            ({"expected": 640, "seen": 700}, "rows-repeated"),
        ],
    ),
    (
        steps.check_steps_seen,
        [{"expected": 8, "seen": 8}],
        [({"expected": 8, "seen": 9}, "steps-not-run")],
    ),
    (
        steps.check_steps_announced,
        [{"planned": 50, "announced": 50}],
        [({"planned": 50, "announced": 1875}, "steps-not-planned")],
    ),
    (
        steps.check_backup_position,
        [{"saved": 2, "begun": 2}, {"saved": 2, "begun": 3}],
        [({"saved": 2, "begun": 1}, "backup-behind")],
    ),
    (
        steps.check_fused_steps,
        [
            {"steps_per_execution": 1, "num_replicas": 2, "reduces_collectively": True},
            {"steps_per_execution": 4, "num_replicas": 1, "reduces_collectively": True},
            {"steps_per_execution": 4, "num_replicas": 2, "reduces_collectively": False},
        ],
        [
            (
                {"steps_per_execution": 4, "num_replicas": 2, "reduces_collectively": True},
                "fused-steps-on-replicas",
            )
        ],
    ),
    (
        data.check_feedable,
        [{"kind": "arrays"}, {"kind": "dataset"}, {"kind": "PyDataset"}],
        [
            ({"kind": "generator"}, "data-not-feedable"),
            ({"kind": "distributed"}, "data-not-feedable"),
            ({"kind": "str"}, "data-not-feedable"),
        ],
    ),
    (
        data.check_rows_planned,
        [{"rows": 600, "planned": 600}],
        [({"rows": 640, "planned": 600}, "rows-not-planned")],
    ),
    (
        data.check_batch_planned,
        [{"batch_size": 32, "planned": 32}],
        [({"batch_size": 32, "planned": 64}, "batch-not-planned")],
    ),
    (
        data.check_generator,
        [{"kind": "generator", "num_replicas": 1}, {"kind": "ndarray", "num_replicas": 2}],
        [({"kind": "generator", "num_replicas": 2}, "generator-loses-data")],
    ),
    (
        data.check_input_kind,
        [
            {"name": "x", "kind": "dense", "num_replicas": 2},
            {"name": "x", "kind": "ragged", "num_replicas": 1},
        ],
        [
            ({"name": "x", "kind": "ragged", "num_replicas": 2}, "input-not-dense"),
            ({"name": "x", "kind": "sparse", "num_replicas": 2}, "input-not-dense"),
        ],
    ),
    (
        data.check_input_dtype,
        [
            {"name": "x", "dtype": "float32", "num_replicas": 2},
            {"name": "x", "dtype": "string", "num_replicas": 1},
        ],
        [
            ({"name": "x", "dtype": "string", "num_replicas": 2}, "input-dtype"),
            ({"name": "x", "dtype": "bool", "num_replicas": 2}, "input-dtype"),
        ],
    ),
    (
        data.check_batched,
        [{"is_batched": True}],
        [({"is_batched": False}, "dataset-not-batched")],
    ),
    (
        data.check_prefetch,
        [{"is_prefetched": True}],
        [({"is_prefetched": False}, "prefetch-missing")],
    ),
    (
        data.check_lengths,
        [{"lengths": [("x", 5), ("y", 5)]}, {"lengths": []}],
        [({"lengths": [("x", 5), ("y", 4)]}, "lengths-differ")],
    ),
    (
        model.check_variable_placement,
        [
            {"name": "v", "owner": "o", "is_on_all_replicas": True, "num_replicas": 2},
            {"name": "v", "owner": "o", "is_on_all_replicas": False, "num_replicas": 1},
        ],
        [
            (
                {"name": "v", "owner": "o", "is_on_all_replicas": False, "num_replicas": 2},
                "variable-outside-scope",
            )
        ],
    ),
    (
        model.check_model_strategy,
        [{"model_replicas": 4, "num_replicas": 4}],
        [({"model_replicas": 1, "num_replicas": 4}, "model-outside-scope")],
    ),
    (
        model.check_loss_rank,
        [
            {"loss": "f", "rank": 1, "num_replicas": 4},
            {"loss": "f", "rank": 0, "num_replicas": 1},
        ],
        [({"loss": "f", "rank": 0, "num_replicas": 4}, "scalar-loss")],
    ),
    (
        model.check_jit_compile,
        [
            {"jit_compile": "auto", "num_replicas": 4},
            {"jit_compile": False, "num_replicas": 4},
            {"jit_compile": True, "num_replicas": 1},
        ],
        [({"jit_compile": True, "num_replicas": 4}, "jit-compile")],
    ),
    (
        model.check_gradient_accumulation,
        [
            {"gradient_accumulation_steps": None, "num_replicas": 4},
            {"gradient_accumulation_steps": 2, "num_replicas": 1},
        ],
        [({"gradient_accumulation_steps": 2, "num_replicas": 4}, "gradient-accumulation")],
    ),
    (
        model.check_clipping,
        [{"clips": [], "num_replicas": 4}, {"clips": ["clipnorm"], "num_replicas": 1}],
        [({"clips": ["clipnorm"], "num_replicas": 4}, "clipping-per-replica")],
    ),
    (
        model.check_batch_normalization,
        [{"unsynchronized": [], "num_replicas": 4}, {"unsynchronized": ["b"], "num_replicas": 1}],
        [({"unsynchronized": ["b"], "num_replicas": 4}, "batchnorm-per-replica")],
    ),
    (
        model.check_scaled_loss,
        [
            {"scales_loss": True, "is_even": False},
            {"scales_loss": False, "is_even": True},
        ],
        [({"scales_loss": False, "is_even": False}, "loss-not-scaled")],
    ),
    (
        model.check_scalar_loss,
        [{"loss": "f", "is_row_mean": True}],
        [({"loss": "f", "is_row_mean": False}, "scalar-loss-not-mean")],
    ),
    (
        model.check_own_metric,
        [{"metric": "m", "adds_up": True}],
        [({"metric": "m", "adds_up": False}, "metric-not-sum")],
    ),
    (
        model.note_unasked_metric,
        [{"metric": "m", "reason": ""}],
        [({"metric": "m", "reason": "TypeError: strings"}, "metric-unasked")],
    ),
    (
        model.check_optimizers_built,
        [{"unbuilt": []}],
        [({"unbuilt": ["adam", "adam_1"]}, "optimizer-not-built")],
    ),
    (
        model.check_own_step,
        [
            {"step": "train_step", "growth": 1.01, "is_random": False, "times": 8},
            {"step": "train_step", "growth": 0.35, "is_random": True, "times": 8},
            {"step": "train_step", "growth": 1.5, "is_random": True, "times": 8},
        ],
        [
            (
                {"step": "train_step", "growth": growth, "is_random": is_random, "times": 8},
                "own-step-not-mean",
            )
            for growth, is_random in ((8.0, False), (0.9, False), (2.83, True), (0.125, True))
        ],
    ),
    (
        model.note_unasked_step,
        [{"step": "train_step", "reason": ""}],
        [({"step": "train_step", "reason": "it takes strings"}, "own-step-unasked")],
    ),
    (
        model.check_on_batch,
        [{"method": "train_on_batch", "num_workers": 1}],
        [({"method": "train_on_batch", "num_workers": 2}, "on-batch-several-workers")],
    ),
    (
        model.check_padding,
        [{"kind": "add_loss", "names": []}],
        [({"kind": "add_loss", "names": ["encoder"]}, "padding-counted")],
    ),
    (
        model.check_static_batch,
        [{"is_static": True}],
        [({"is_static": False}, "batch-not-static")],
    ),
    (
        model.note_mended,
        [
            {"part": "clipping", "names": [], "num_replicas": 2},
            {"part": "clipping", "names": ["clipnorm=1"], "num_replicas": 1},
        ],
        [
            ({"part": part, "names": list("abcd"), "num_replicas": 2}, code)
            for part, code in (
                ("clipping", "clipping-after-sum"),
                ("accumulation", "accumulation-of-sums"),
                ("masks", "own-mask-per-replica"),
                ("statistics", "batchnorm-synchronized"),
            )
        ],
    ),
    (
        model.check_step_names,
        [{"step": "train_step", "names": ["reduce_mean"]}],
        [({"step": "train_step", "names": ["num_replicas_in_sync"]}, "step-scales-itself")],
    ),
    (
        model.check_run_eagerly,
        [{"run_eagerly": False}],
        [({"run_eagerly": True}, "eager-on-tpu")],
    ),
    (
        model.check_step_clips,
        [{"step": "train_step", "names": ["clip_by_value"]}],
        [({"step": "train_step", "names": ["clip_by_global_norm"]}, "step-clips-itself")],
    ),
    (
        model.check_dropout,
        [{"layers": [], "num_replicas": 4}, {"layers": ["d"], "num_replicas": 1}],
        [({"layers": list("abcde"), "num_replicas": 4}, "same-mask-per-replica")],
    ),
]
# Nothing in the arguments mends these: more data, or a change of the program, does.
WITHOUT_CURE = {"dataset-empty", "steps-missing", "batch-uneven"} | {
    "rows-not-consumed",
    "rows-repeated",
    "steps-not-run",
}
WRONG = [(check, arguments, code) for check, _, wrong in TABLE for arguments, code in wrong]


@pytest.mark.parametrize(
    ("check", "arguments"),
    [(check, arguments) for check, right, _ in TABLE for arguments in right],
)
def test_what_is_right_passes(check, arguments):
    assert check(**arguments) is None


@pytest.mark.parametrize(("check", "arguments", "code"), WRONG)
def test_what_is_wrong_is_named_and_the_cure_passes(check, arguments, code):
    finding = check(**arguments)
    assert finding.code == code
    assert bool(finding.cures) == (code not in WITHOUT_CURE)
    for cure in finding.cures:
        assert check(**{**arguments, **cure}) is None


@pytest.mark.parametrize("module", [batches, data, model, steps])
def test_every_rule_is_in_the_table(module):
    rules = {
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("check_")
    }
    assert rules <= {check for check, _, _ in TABLE}


@given(st.integers(-3, 500), st.integers(1, 17))
def test_any_batch_has_a_cure_that_passes(size, replicas):
    finding = batches.check_global_batch(size, replicas)
    assert (finding is None) == (size >= replicas and size % replicas == 0)
    for cure in finding.cures if finding else ():
        assert batches.check_global_batch(num_replicas=replicas, **cure) is None


@given(st.integers(1, 500), st.integers(1, 60))
def test_any_epoch_has_a_cure_that_fills_it(steps_per_epoch, steps_per_execution):
    finding = steps.check_steps_per_execution(steps_per_epoch, steps_per_execution)
    assert (finding is None) == (steps_per_epoch % steps_per_execution == 0)
    for cure in finding.cures if finding else ():
        cured = steps.check_steps_per_execution(steps_per_execution=steps_per_execution, **cure)
        assert cured is None


@given(st.integers(-2, 60), st.one_of(st.none(), st.integers(-1, 70)), st.integers(1, 5))
def test_training_that_passes_never_runs_out_of_data(cardinality, steps_per_epoch, epochs):
    finding = steps.check_cardinality(cardinality, steps_per_epoch, epochs)
    if finding is None and steps_per_epoch is not None and cardinality >= 0:
        # Keras starts a dataset anew when an epoch ends exactly with it.
        assert steps_per_epoch == cardinality
    if finding is not None and finding.severity == "warning" and cardinality >= 0:
        assert steps_per_epoch * epochs <= cardinality


@given(st.integers(1, 5000), st.integers(1, 100))
def test_keras_s_own_cut_of_arrays_is_foreseen(num_samples, steps_per_epoch):
    batch = steps.array_batch_size(num_samples, steps_per_epoch, None)
    assert batch == math.ceil(num_samples / steps_per_epoch)
    assert steps.array_batch_size(num_samples, None, None) == 32
    assert steps.array_batch_size(num_samples, steps_per_epoch, 7) == 7


@given(st.integers(1, 10_000), st.floats(-1, 2))
def test_a_split_leaves_out_no_row(num_samples, validation_split):
    training, validation = data.split_rows(num_samples, validation_split)
    assert training + validation == num_samples
    assert training >= 0
    assert validation >= 0


def test_rows_that_no_batch_near_uses_up_are_accepted():
    finding = batches.check_rows_dropped(1_797, 64, nearest_batch_size=64)
    assert finding.cures == ()
    assert "leaves out fewer" in finding.fix
    better = batches.check_rows_dropped(1_797, 64, nearest_batch_size=69)
    assert better.fix == "Use global_batch_size=69, which leaves out 3, or accept it."


def test_fewer_rows_than_replicas_have_no_batch_to_be_cured_with():
    finding = batches.check_batch_fits_data(8, 3, 8)
    assert "fewer than 8 replicas" in finding.fix
    assert finding.cures == ()


def test_a_part_on_more_replicas_than_its_model_is_named():
    finding = model.part_on_more_replicas("layer 'dense'", 8, 1)
    assert finding.code == "model-outside-scope"
    assert finding.what == "Layer 'dense' is on 8 replicas, and the model on 1."
