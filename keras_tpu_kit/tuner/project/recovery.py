"""Reads a project's files, whatever state they are in, and says what was mended or lost."""

from __future__ import annotations

import contextlib
import math
import pathlib
import shutil
from typing import TYPE_CHECKING, Any

from keras_tuner.engine import metrics_tracking
from keras_tuner.engine import trial as trial_module

from keras_tpu_kit.errors import Finding, SearchError
from keras_tpu_kit.tuner.project import files
from keras_tpu_kit.tuner.project.identity import changed_search_finding
from keras_tpu_kit.tuner.project.layout import JOURNAL_FILE, KIT_KEY, ORACLE_FILE, TRIAL_FILE

if TYPE_CHECKING:
    from keras_tpu_kit.tuner.project.durable import DurableOracle

_ENDED = (trial_module.TrialStatus.COMPLETED, trial_module.TrialStatus.FAILED)


def recover(oracle: DurableOracle) -> list[Finding]:
    """Sets an oracle to what its project's files say, and returns what was mended or lost.

    A trial's own file decides whether it has ended, as it is written first; `oracle.json`
    decides which trials were begun, as no trial is handed out before it is written.

    Args:
        oracle: The oracle of the search, whose project may be new, whole or damaged.
    """
    project = oracle.project_path
    findings: list[Finding] = []
    journal = {line["trial_id"]: line for line in _lines(project)}
    state = files.read_json(project / ORACLE_FILE)
    trials, kit_state = _read_trials(project, journal, findings)
    state_lost = state.value is None
    if state_lost and not trials:
        if state.damage is not None:
            findings.append(_mended(ORACLE_FILE, state.damage, "No trial had been begun."))
        oracle.trials = {}
        return findings

    begun = list(trials) if state_lost else list(state.value["start_order"])
    running = {} if state_lost else state.value.get(KIT_KEY, {}).get("running", {})
    _find_lost(begun, trials, journal, running, oracle, findings)
    if state_lost:
        damage = state.damage or "is missing"
        _rebuild(oracle, trials, begun, kit_state)
        findings.append(
            _mended(ORACLE_FILE, damage, f"It was rebuilt from the files of {len(trials)} trials.")
        )
    else:
        if state.damage is not None:
            what = "The version before it was taken, and the trials' own files for what followed."
            findings.append(_mended(ORACLE_FILE, state.damage, what))
        _adopt(oracle, state.value, trials, begun)
    _settle(oracle, journal)
    if state_lost:
        oracle.rebuild_algorithm()
    return findings


def _lines(project: pathlib.Path) -> list[dict[str, Any]]:
    lines = files.read_lines(project / JOURNAL_FILE)
    return [line for line in lines if isinstance(line, dict) and "trial_id" in line]


def _read_trials(
    project: pathlib.Path, journal: dict[str, dict[str, Any]], findings: list[Finding]
) -> tuple[dict[str, trial_module.Trial], dict[str, Any]]:
    """Returns the trials that can be read, and what the latest of them says of the oracle."""
    trials: dict[str, trial_module.Trial] = {}
    latest: dict[str, Any] = {}
    names = sorted(e.name for e in project.iterdir() if e.is_dir()) if project.is_dir() else []
    for name in (name for name in names if name.startswith("trial_")):
        reading = files.read_json(project / name / TRIAL_FILE)
        trial_id = name.removeprefix("trial_")
        trial = _trial_of(reading.value)
        if trial is None:
            continue
        trials[trial_id] = trial
        kit_state = reading.value.get(KIT_KEY, {})
        if kit_state.get("seed_state", 0) >= latest.get("seed_state", 0):
            latest = kit_state
        if reading.damage is not None:
            what = f"Its version before was taken{_from_journal(trial, journal.get(trial_id))}."
            findings.append(_mended(f"{name}/{TRIAL_FILE}", reading.damage, what))
    return trials, latest


def _trial_of(state: Any) -> trial_module.Trial | None:
    with contextlib.suppress(KeyError, TypeError):
        return trial_module.Trial.from_state(state)
    return None


def _from_journal(trial: trial_module.Trial, line: dict[str, Any] | None) -> str:
    """Brings an older version of a trial up to what the journal knows of its end."""
    if line is None or trial.status in _ENDED:
        return ""
    for name in ("status", "score", "best_step", "message"):
        setattr(trial, name, line[name])
    return f", and its end ({line['status']}) from {JOURNAL_FILE}"


def _find_lost(
    begun: list[str],
    trials: dict[str, trial_module.Trial],
    journal: dict[str, dict[str, Any]],
    running: dict[str, dict[str, Any]],
    oracle: DurableOracle,
    findings: list[Finding],
) -> None:
    """Fills in the trials that have no file left."""
    for trial_id in [each for each in [*begun, *journal] if each not in trials]:
        line = journal.get(trial_id)
        hyperparameters = oracle.hyperparameters.copy()
        hyperparameters.values = dict(line["values"]) if line else {}
        trial = trial_module.Trial(hyperparameters, trial_id, trial_module.TrialStatus.FAILED)
        trial.message = "Its files were lost."
        if line:
            for name in ("status", "score", "best_step", "message"):
                setattr(trial, name, line[name])
            if trial.score is not None:
                trial.metrics.register(oracle.objective.name, oracle.objective.direction)
                trial.metrics.update(oracle.objective.name, trial.score, step=trial.best_step)
            what = f"Its values and score were taken from {JOURNAL_FILE}; the rest is lost."
        elif trial_id in running:
            trial.status, trial.message = trial_module.TrialStatus.RUNNING, None
            trial.hyperparameters.values = dict(running[trial_id])
            what = f"Its values were taken from {ORACLE_FILE}, and it is done again."
        else:
            what = "Nothing else knows of it, so it counts as failed."
        trials[trial_id] = trial
        findings.append(_mended(f"trial_{trial_id}/{TRIAL_FILE}", "cannot be read", what))


def _adopt(
    oracle: DurableOracle,
    state: dict[str, Any],
    trials: dict[str, trial_module.Trial],
    begun: list[str],
) -> None:
    """Sets the oracle to a saved state and to trials that may be ahead of it."""
    identity = state.get(KIT_KEY, {}).get("identity")
    if identity is not None and identity["oracle"] != oracle.name:
        # Its state would not even fit.
        current = {**identity, "oracle": oracle.name}
        finding = changed_search_finding(identity, current, str(oracle.project_path))
        assert finding is not None
        raise SearchError(finding)
    known = set(begun)
    ahead = [trial_id for trial_id in trials if trial_id not in known]
    for trial_id in list(ahead):
        if trials[trial_id].status not in _ENDED:
            # Its file was written, but nobody got it to run: it is created again, the same.
            del trials[trial_id]
            ahead.remove(trial_id)
            shutil.rmtree(oracle.trial_path(trial_id), ignore_errors=True)
    order = [*begun, *sorted(ahead)]
    oracle.trials = {trial_id: trials[trial_id] for trial_id in order if trial_id in trials}
    oracle.set_state(state)
    oracle.start_order = order
    for trial_id in ahead:
        oracle._record_values(oracle.trials[trial_id])


def _rebuild(
    oracle: DurableOracle,
    trials: dict[str, trial_module.Trial],
    begun: list[str],
    kit_state: dict[str, Any],
) -> None:
    """Sets the oracle to what its trials imply."""
    oracle.trials = {trial_id: trials[trial_id] for trial_id in sorted(begun, key=_number)}
    oracle.start_order = list(oracle.trials)
    oracle.end_order, oracle.ongoing_trials, oracle._retry_queue = [], {}, []
    oracle.seed = kit_state.get("seed", oracle.seed)
    oracle._seed_state = kit_state.get("seed_state", oracle._seed_state)
    for trial in oracle.trials.values():
        oracle.update_space(trial.hyperparameters)
        oracle._record_values(trial)


def _settle(oracle: DurableOracle, journal: dict[str, dict[str, Any]]) -> None:
    """Makes the oracle's lists agree with how each trial stands."""
    in_journal = {trial_id: place for place, trial_id in enumerate(journal)}
    for trial in oracle.trials.values():
        if trial.trial_id in oracle.end_order and trial.status not in _ENDED:
            _end(oracle, trial)
    ended = [t.trial_id for t in oracle.trials.values() if t.status in _ENDED]
    missing = [trial_id for trial_id in ended if trial_id not in oracle.end_order]
    for trial_id in sorted(missing, key=lambda each: (in_journal.get(each, math.inf), each)):
        oracle.end_order.append(trial_id)
        oracle._run_times[trial_id] = max(1, oracle._run_times[trial_id])
    oracle.end_order = [each for each in dict.fromkeys(oracle.end_order) if each in oracle.trials]
    done = set(oracle.end_order)
    running = [each for each in oracle.trials if each not in done]
    oracle.ongoing_trials = {
        tuner_id: trial
        for tuner_id, trial in oracle.ongoing_trials.items()
        if trial.trial_id not in done
    }
    waiting = {trial.trial_id for trial in oracle.ongoing_trials.values()}
    queue = [each for each in dict.fromkeys(oracle._retry_queue) if each in running]
    # The queue hands out its last first: begun first, done first.
    orphans = [each for each in running if each not in waiting and each not in queue]
    oracle._retry_queue = [*queue, *reversed(orphans)]


def _end(oracle: DurableOracle, trial: trial_module.Trial) -> None:
    """Scores a trial that is known to have ended, from the metrics that are left of it."""
    if oracle.objective.name in trial.metrics.metrics:
        trial.status = trial_module.TrialStatus.COMPLETED
        oracle.score_trial(trial)
    else:
        trial.status = trial_module.TrialStatus.FAILED
        trial.message = "What it came to was lost."
        trial.metrics = metrics_tracking.MetricsTracker()


def _number(trial_id: str) -> tuple[int, str]:
    return (int(trial_id) if trial_id.isdigit() else 0, trial_id)


def _mended(name: str, damage: str, what_was_done: str) -> Finding:
    return Finding(
        "project-repaired",
        "warning",
        f"The project's file {name} {damage}.",
        what_was_done,
        "Nothing is left to do, unless the disk is failing: then copy the project elsewhere.",
    )
