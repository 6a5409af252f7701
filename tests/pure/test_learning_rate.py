import math

import pytest

from keras_tpu_kit import PlanError, scaled_learning_rate, warmup_args


@pytest.mark.parametrize(
    ("batch", "rule", "rate"),
    [(256, "linear", 0.1), (512, "linear", 0.2), (64, "linear", 0.025), (1024, "sqrt", 0.2)],
)
def test_the_rate_follows_the_batch(batch, rule, rate):
    assert scaled_learning_rate(0.1, batch, rule=rule) == pytest.approx(rate, rel=1e-12)


def test_the_warm_up_climbs_to_the_scaled_rate_and_fills_the_training():
    args = warmup_args(0.1, 4096, steps_per_epoch=312, epochs=90, warmup_epochs=2.5, rule="sqrt")
    assert args["warmup_target"] == pytest.approx(0.1 * math.sqrt(16))
    assert args["warmup_steps"] == 780
    assert args["warmup_steps"] + args["decay_steps"] == 312 * 90
    assert args["initial_learning_rate"] == 0.1


@pytest.mark.parametrize("wrong", [(0, 256), (0.1, 0), (-1, 256)])
def test_what_is_not_positive_is_refused(wrong):
    with pytest.raises(PlanError, match="not all positive"):
        scaled_learning_rate(*wrong)


def test_an_unknown_rule_is_refused_with_those_that_are_known():
    with pytest.raises(PlanError) as caught:
        scaled_learning_rate(0.1, 512, rule="cubic")
    for cure in caught.value.finding.cures:
        assert scaled_learning_rate(0.1, 512, **cure) > 0.1


@pytest.mark.parametrize(("warmup", "epochs"), [(5, 5), (6, 5), (-1, 5), (5, 1)])
def test_a_warm_up_that_does_not_fit_is_refused_and_its_cure_fits(warmup, epochs):
    with pytest.raises(PlanError) as caught:
        warmup_args(0.1, 512, steps_per_epoch=10, epochs=epochs, warmup_epochs=warmup)
    (cure,) = caught.value.finding.cures
    args = warmup_args(0.1, 512, steps_per_epoch=10, epochs=epochs, **cure)
    assert args["decay_steps"] >= 1
