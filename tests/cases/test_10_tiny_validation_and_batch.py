"""A validation batch that the replicas do not divide stops with "AddN must have the same size"."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import keras_tpu_kit as ktk
from tests.cases.parts import LinearFactory, compiled, on_replicas, rows
from tests.replicas import replicas


@pytest.mark.parametrize("count", [1, 3])
def test_a_stock_model_is_told_before_its_first_validation(count):
    model = on_replicas()
    with pytest.raises(ktk.DataError, match=f"first validation batch has {count} rows") as caught:
        ktk.callbacks_for(
            model, rows(32), batch_size=16, validation_data=rows(count), validation_batch_size=16
        )
    assert caught.value.finding.code == "validation-batch-uneven"


def test_the_proposed_validation_batch_passes_and_counts_each_row_once():
    model = on_replicas(metrics=["mae"])
    validation = rows(7)
    with pytest.raises(ktk.DataError) as caught:
        ktk.callbacks_for(model, rows(32), batch_size=16, validation_data=validation)
    (size,) = {cure["batch_rows"] for cure in caught.value.finding.cures if cure["batch_rows"] < 7}
    callbacks = ktk.callbacks_for(
        model, rows(32), batch_size=16, validation_data=validation, validation_batch_size=size
    )
    history = model.fit(
        *rows(32),
        batch_size=16,
        validation_data=validation,
        validation_batch_size=size,
        verbose=0,
        callbacks=callbacks,
    )
    one = compiled(metrics=["mae"])
    one.set_weights(model.get_weights())
    expected = one.evaluate(*validation, verbose=0, return_dict=True)
    for name, value in expected.items():
        assert history.history[f"val_{name}"][0] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("batch", "code"), [(1, "batch-leaves-replicas-empty"), (5, "batch-not-divisible")]
)
def test_a_stock_model_with_a_batch_that_replicas_do_not_divide_is_refused(batch, code):
    with pytest.raises(ktk.PlanError) as caught:
        ktk.callbacks_for(on_replicas(), rows(30), batch_size=batch)
    assert caught.value.finding.code == code


@pytest.mark.parametrize("count", [1, 3, 8])
def test_a_factory_validates_any_number_of_rows_each_once(count):
    run = LinearFactory(replicas(2)).fit(
        rows(32), validation_data=rows(count), global_batch_size=16, verbose=0
    )
    one = compiled()
    one.set_weights(run.model.get_weights())
    expected = one.evaluate(*rows(count), verbose=0)
    assert run.history.history["val_loss"] == pytest.approx([expected], abs=1e-6)


def test_a_replicated_model_may_have_any_batch():
    model = ktk.replicate(on_replicas())
    callbacks = ktk.callbacks_for(
        model, rows(30), batch_size=5, validation_data=rows(3), validation_batch_size=2
    )
    model.fit(*rows(30), batch_size=5, validation_data=rows(3), verbose=0, callbacks=callbacks)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert dataclasses.replace(callbacks[0].throughput, execution_seconds=()).steps == 5
