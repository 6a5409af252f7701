import io
import json

import pytest
from rich.console import Console

from keras_tpu_kit import Finding, PlanError, Throughput, Topology, plan_batches
from keras_tpu_kit.report import Report, plan_table, render, rows_table, show, throughput_table

PLAN = plan_batches(
    Topology(accelerator="tpu", num_replicas=8),
    num_samples=60_000,
    global_batch_size=1200,
    num_validation_samples=10_000,
)
INFO = Finding("costly", "info", "It is [slow].", "It waits.", "Wait less.")
ERROR = Finding("broken", "error", "It is broken.", "It fell.", "Mend it.")


def test_a_report_shows_errors_first_and_brackets_as_they_are():
    text = str(Report("Examined", [INFO, ERROR], PLAN))
    assert text.index("error: It is broken.") < text.index("info: It is [slow].")
    assert "Examined" in text
    assert "60000 rows" in text


def test_a_report_raises_its_first_error_as_the_asked_class():
    with pytest.raises(PlanError, match="It is broken"):
        Report("r", [INFO, ERROR]).raise_for_errors(PlanError)
    Report("r", [INFO]).raise_for_errors()
    assert Report("r", [INFO, ERROR]).has_errors
    assert not Report("r", [INFO]).has_errors


def test_a_report_is_json_with_its_plan():
    document = json.loads(Report("r", [ERROR], PLAN).to_json())
    assert document["plan"]["num_samples"] == 60_000
    assert document["findings"] == [ERROR.to_dict()]
    assert json.loads(Report("r").to_json())["plan"] is None


def test_a_report_is_shown_where_it_is_told():
    stream = io.StringIO()
    Report("Title", [INFO]).show(Console(file=stream, width=80))
    assert stream.getvalue().startswith("Title\n")


def test_the_plan_table_says_what_the_plan_decides():
    text = render(plan_table(PLAN))
    for figure in ("1200", "150", "50", "for 10000 rows, none left out"):
        assert figure in text
    without = plan_batches(PLAN.topology, num_samples=960, global_batch_size=96)
    assert "validation" not in render(plan_table(without))


def test_the_throughput_table_says_what_is_known_in_readable_units():
    run = Throughput(
        num_replicas=2,
        rows=4_000,
        steps=400,
        execution_seconds=(0.04, 0.04),
        first_execution_seconds=2.5,
        flops_per_step=1e6,
        peak_flops_per_replica=1e11,
    )
    text = render(throughput_table(run))
    assert "50,000" in text
    assert "25,000" in text
    assert "200 µs" in text
    assert "40.00 ms" in text
    assert "2.50 s" in text
    assert "unknown" in text
    assert "2.5%" in text  # 1e6 operations in 200 µs on two replicas of 1e11 a second
    bare = Throughput(num_replicas=1, rows=1, steps=1, execution_seconds=(1.0,))
    assert "first execution" not in render(throughput_table(bare))
    assert "MFU" not in render(throughput_table(bare))


def test_the_throughput_table_compares_with_one_replica_where_that_is_known():
    run = Throughput(num_replicas=4, rows=380, steps=1, execution_seconds=(1.0,))
    text = render(throughput_table(run, one_replica_rate=100))
    assert "95.0%" in text
    assert "4 x 100 samples per second" in text
    uncounted = Throughput(num_replicas=4, rows=None, steps=0, execution_seconds=())
    (line,) = (
        line
        for line in render(throughput_table(uncounted, one_replica_rate=100)).splitlines()
        if "scaling efficiency" in line
    )
    assert "unknown" in line


def test_a_file_has_room_for_a_wide_table_unless_the_environment_says_how_wide_it_is(
    capsys, monkeypatch
):
    table = rows_table("Wide", ("name", "number", "meaning"), [("a", "1", "x" * 90)])
    monkeypatch.delenv("COLUMNS", raising=False)
    show(table)
    assert "x" * 90 in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    show(table)
    shown = capsys.readouterr().out
    assert "x" * 90 not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_print_shows_a_table_as_it_is_drawn():
    table = rows_table("Wide", ("name", "meaning"), [("a", "x" * 90)])
    assert str(table) == render(table, width=120)
    assert "x" * 90 in str(table)
