"""A first batch that the replicas do not divide stops with "AddN must have the same size"."""

from __future__ import annotations

import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, on_replicas, rows, weight_gap
from tests.replicas import replicas


def test_a_stock_model_is_told_the_batches_that_work_and_they_do():
    model, data = on_replicas(2), rows(60)
    with pytest.raises(ktk.PlanError, match="does not divide over the 2 replicas") as caught:
        ktk.callbacks_for(model, data, batch_size=15)
    assert [cure["global_batch_size"] for cure in caught.value.finding.cures] == [14, 16]
    callbacks = ktk.callbacks_for(model, data, batch_size=14)
    model.fit(*data, batch_size=14, verbose=0, callbacks=callbacks)


def test_a_short_only_batch_is_named_by_its_rows():
    with pytest.raises(ktk.DataError, match="a batch of 30 rows"):
        ktk.callbacks_for(on_replicas(4), rows(30), batch_size=32)


def test_warn_goes_on_to_where_keras_stops():
    with pytest.warns(UserWarning, match="a batch of 30 rows"):
        callbacks = ktk.callbacks_for(on_replicas(4), rows(30), batch_size=32, on_problem="warn")
    assert callbacks[2].on_problem == "warn"


def test_a_factory_model_trains_on_it_like_one_device():
    model = LinearFactory(replicas(2)).create()
    one = compiled()
    callbacks = ktk.callbacks_for(model, rows(31), batch_size=16)
    for each, watch in ((model, callbacks), (one, [])):
        each.fit(*rows(31), batch_size=16, epochs=2, shuffle=False, verbose=0, callbacks=watch)
    assert weight_gap(model, one) < 1e-5
    assert model.evaluate(*rows(31), verbose=0) == pytest.approx(
        one.evaluate(*rows(31), verbose=0), abs=1e-6
    )
