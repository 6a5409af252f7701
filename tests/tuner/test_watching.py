"""What a search shows, prunes and remembers, by a real oracle that is told of trials."""

from __future__ import annotations

import json

import keras_tuner
import matplotlib.figure
import matplotlib.image
import pytest
from rich.console import Console

import keras_tpu_kit as ktk
from keras_tpu_kit.tuner import live, results
from keras_tpu_kit.tuner.display import Display
from keras_tpu_kit.tuner.internals import TrialStatus
from keras_tpu_kit.tuner.picture import _keep_to_the_bulk, draw_search, pareto_front
from keras_tpu_kit.tuner.pruning import judge
from keras_tpu_kit.tuner.record import TrialRecord, reason_of
from keras_tpu_kit.tuner.supervision import FRESH, supervise


class Clock:
    """Tells the seconds that it was set to."""

    now = 1000.0

    def __call__(self):
        return self.now


class Search:
    """An oracle that several workers ask, as the engine sets it up."""

    def __init__(self, directory, *, pruner=None, log="quiet", max_trials=9):
        self.oracle = keras_tuner.oracles.RandomSearchOracle(
            "val_accuracy", max_trials=max_trials, seed=1
        )
        self.oracle.hyperparameters.Int("units", 1, 1000)
        self.oracle._set_project_dir(str(directory), "watched")
        self.clock = Clock()
        self.display = Display(self.oracle, log, self.clock)
        wanted = None if pruner is None else lambda oracle, trial: judge(pruner, oracle, trial)
        supervise(self.oracle, judge=wanted, display=self.display)

    def begin(self, worker="worker0"):
        return self.oracle.create_trial(worker)

    def report(self, trial, epoch, value, **metrics):
        """Returns whether the trial shall go on."""
        told = {"val_accuracy": value, **metrics}
        return self.oracle.update_trial(trial.trial_id, told, epoch).status != TrialStatus.STOPPED

    def end(self, trial, **facts):
        record = TrialRecord(**{"began": 1000.0, "seconds": 60.0, "planned_epochs": 3, **facts})
        trial.status, trial.message = record.status, record.to_message()
        self.oracle.end_trial(trial)

    def run(self, values, **facts):
        trial = self.begin()
        for epoch, value in enumerate(values):
            self.report(trial, epoch, value, samples_per_second=1000.0 * (1 + epoch))
        self.end(trial, **{"epochs": len(values), **facts})
        return trial


def test_pruner_sees_the_epochs_of_all_workers_and_the_best_value_stays(tmp_path):
    search = Search(tmp_path, pruner=ktk.MedianPruner(warmup_epochs=2, min_trials=2))
    for value in (0.8, 0.9):
        search.run([value - 0.1, value, value + 0.01])
    slow = search.begin("worker1")
    assert search.report(slow, 0, 0.1)
    other = search.begin("worker2")
    assert search.report(other, 0, 0.8)
    assert not search.report(slow, 1, 0.2)
    assert search.oracle.trials[slow.trial_id].status == TrialStatus.RUNNING
    assert search.report(other, 1, 0.85)
    search.end(slow, outcome="pruned", reason="why", epochs=2)
    assert search.oracle.trials[slow.trial_id].score == 0.2
    assert search.oracle.trials[slow.trial_id].status == TrialStatus.COMPLETED


def test_trial_that_is_begun_again_counts_nothing_twice(tmp_path):
    search = Search(tmp_path)
    trial = search.begin()
    search.report(trial, 0, 0.9)
    search.report(trial, 1, 0.95)
    search.oracle.update_trial(trial.trial_id, {"val_accuracy": 0.5, FRESH: 0.0}, 0)
    search.end(trial, epochs=1)
    kept = search.oracle.trials[trial.trial_id]
    assert kept.score == 0.5
    assert list(kept.metrics.metrics) == ["val_accuracy"]
    assert len(kept.metrics.get_history("val_accuracy")) == 1


def test_failed_trials_in_a_row_do_not_break_the_oracle(tmp_path):
    search = Search(tmp_path)
    for _ in range(4):
        search.run([], outcome="infeasible", reason="too large")
    assert search.oracle.end_order == search.oracle.start_order
    search.run([0.5])


def test_json_lines_tell_each_event(tmp_path, capsys):
    search = Search(tmp_path, log="json", max_trials=2)
    with search.display.shown(planned_epochs=3):
        search.run([0.5, 0.6])
        search.run([], outcome="diverged", reason="loss was nan in epoch 1.")
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events] == [
        "search_begin",
        "trial_begin",
        "epoch",
        "epoch",
        "trial_end",
        "trial_begin",
        "trial_end",
        "search_end",
    ]
    assert events[0]["trials_in_all"] == 2
    assert events[1]["hyperparameters"]["units"] > 0
    assert (events[3]["epoch"], events[3]["metrics"]["val_accuracy"]) == (2, 0.6)
    assert (events[4]["outcome"], events[4]["score"], events[4]["best_epoch"]) == (
        "finished",
        0.6,
        2,
    )
    assert (events[6]["outcome"], events[6]["score"]) == ("diverged", None)


def test_text_is_a_line_for_each_trial_with_the_table_at_the_end(tmp_path, capsys):
    search = Search(tmp_path, log="text")
    with search.display.shown(planned_epochs=3):
        search.run([0.5, 0.6])
        search.run([], outcome="diverged", reason="loss was nan in epoch 1.")
    first, second, *table = capsys.readouterr().out.splitlines()
    assert "trial 0 finished: val_accuracy=0.6 in 60.0 s" in first
    assert "trial 1 diverged (loss was nan in epoch 1):" in second
    assert table[0].split() == ["Trials"]
    text = "\n".join(table)
    assert "finished" in text and "diverged: loss was" in text
    assert table[-1].startswith("1 finished, 1 diverged; ")


def test_quiet_is_nothing(tmp_path, capsys):
    search = Search(tmp_path, log="quiet")
    with search.display.shown(planned_epochs=3):
        search.run([0.5, 0.6])
    assert capsys.readouterr().out == ""


def test_verbose_0_is_quiet_unless_another_log_is_asked_for(tmp_path, capsys):
    search = Search(tmp_path, log="auto")
    search.display.verbose = 0
    with search.display.shown(planned_epochs=3):
        search.run([0.5])
    assert capsys.readouterr().out == ""


def test_unknown_log_is_refused(tmp_path):
    with pytest.raises(ktk.SearchError) as error:
        Search(tmp_path, log="loud")
    assert error.value.finding.code == "unknown-log"


def test_live_picture_shows_bars_best_time_left_and_the_table(tmp_path):
    search = Search(tmp_path, max_trials=4)
    search.display.planned_epochs = 3
    search.run([0.5, 0.7], outcome="pruned", reason="val_accuracy was 0.7 after epoch 2.")
    search.run([0.9, 0.95, 0.94])
    running = search.begin()
    search.report(running, 0, 0.6)
    search.clock.now += 30.0
    console = Console(width=250, color_system=None)
    with console.capture() as captured:
        console.print(search.display._picture())
    text = captured.get()
    assert "2/4" in text
    assert "best val_accuracy 0.95" in text
    assert "0:01:30 left" in text  # Two trials of a minute, one of them half done.
    assert "epoch 1/3" in text
    assert "pruned: val_accuracy was 0.7 after epoch 2." in text
    assert "1 pruned, 1 finished" in text or "1 finished, 1 pruned" in text


def test_time_left_is_unknown_before_the_first_trial_ended(tmp_path):
    assert live.seconds_left([], 4, [], 0.0) is None


def test_results_are_ranked_and_their_metrics_are_those_of_the_best_epoch(tmp_path):
    search = Search(tmp_path)
    search.run([0.5, 0.6, 0.55])
    search.run([], outcome="out of memory", reason="OOM when allocating", epochs=0)
    search.run([0.7], outcome="pruned", reason="late", num_replicas=2, planned_epochs=4)
    found = results.ranked(search.oracle.trials.values(), search.oracle.objective)
    assert [each["score"] for each in found] == [0.7, 0.6, None]
    assert found[1]["best_epoch"] == 2
    assert found[1]["metrics"] == {"val_accuracy": 0.6, "samples_per_second": 2000.0}
    assert found[0]["device_seconds"] == 120.0
    assert found[0]["device_seconds_saved"] == 360.0
    assert json.loads(json.dumps(found)) == found
    console = Console(width=250, color_system=None)
    with console.capture() as captured:
        console.print(results.table(found, search.oracle.objective, proposal_seconds=2.0))
    assert "0.1 saved by pruning" in captured.get()
    assert "Choosing values took 2.0 s." in captured.get()
    assert "out of memory: OOM when allocating" in captured.get()


@pytest.mark.parametrize("with_values", [True, False])
def test_picture_is_a_png(with_values, tmp_path):
    search = Search(tmp_path)
    if with_values:
        search.run([0.5, 0.6])
        search.run([0.7], outcome="pruned", began=1060.0)
    search.run([], outcome="diverged")
    found = results.ranked(search.oracle.trials.values(), search.oracle.objective)
    draw_search(found, search.oracle.objective, tmp_path / "search.png")
    pixels = matplotlib.image.imread(tmp_path / "search.png")
    assert pixels.shape[0] > 400
    assert pixels[..., :3].std() > 0.01


@pytest.mark.parametrize(
    ("scores", "high", "told"),
    [
        ([0.5, 0.6, 0.7, 0.8, 1e30], 0.9, "1 trial beyond this axis"),
        ([0.5, 0.6, 0.7, 0.8], 0.9, None),
        ([0.5, 1e30], 1.1e30, None),
    ],
)
def test_values_far_out_do_not_flatten_the_others(scores, high, told):
    axes = matplotlib.figure.Figure().subplots()
    axes.scatter(range(len(scores)), scores)
    _keep_to_the_bulk(axes, scores)
    bottom, top = axes.get_ylim()
    assert bottom <= min(scores) and top <= high
    assert [text.get_text() for text in axes.texts] == ([told] if told else [])


@pytest.mark.parametrize(
    ("points", "direction", "front"),
    [
        ([(1, 9), (2, 8), (1.5, 7)], "max", [(1, 9), (2, 8)]),
        ([(1, 9), (2, 9.5)], "max", [(2, 9.5)]),
        ([(1, 9), (2, 8), (3, 8.5)], "min", [(2, 8), (3, 8.5)]),
        ([(1, 5), (1, 6)], "max", [(1, 6)]),
        ([], "max", []),
    ],
)
def test_pareto_front(points, direction, front):
    assert pareto_front(points, direction) == front


def test_reason_of_a_trial_that_others_ended(tmp_path):
    search = Search(tmp_path)
    trial = search.begin()
    trial.status, trial.message = TrialStatus.FAILED, "Its process died 3 times while it ran."
    assert reason_of(trial) == "Its process died 3 times while it ran."
    assert TrialRecord.from_message("Traceback ...") is None
    assert results.result_of(trial, search.oracle.objective)["outcome"] == "failed"
