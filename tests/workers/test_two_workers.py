"""Two workers on loopback train as one; when one dies, the other says so and ends."""

import json
import pathlib
import signal
import sys
import time

import numpy as np
import pytest

from keras_tpu_kit.cluster import Cluster
from keras_tpu_kit.processes import Command, ProcessGroup, free_ports, run_group

SCRIPT = str(pathlib.Path(__file__).with_name("train.py"))
ROOT = str(pathlib.Path(__file__).parents[2])
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1", "PYTHONPATH": ROOT}
# Generous, since it only bounds a hang: several TensorFlows may start on a busy machine.
LIMIT = 400


def command(index, addresses, *arguments, script=SCRIPT):
    config = {"TF_CONFIG": Cluster(addresses, index).to_tf_config()} if addresses else {}
    argv = [sys.executable, script, *map(str, arguments)]
    return Command(argv, f"worker {index}", {"TF_CONFIG": "{}", **QUIET, **config})


def addresses_on_loopback():
    return tuple(f"127.0.0.1:{port}" for port in free_ports(2))


def weights(lines):
    """Returns the weights that each worker has printed, by the mark of its lines."""
    said = [line.partition("weights ") for line in lines if "weights " in line]
    return {mark: [float(value) for value in values.split()] for mark, _, values in said}


@pytest.mark.slow
def test_two_workers_end_with_the_weights_of_one():
    where = addresses_on_loopback()
    lines = []
    pair = [command(index, where, 3, -1) for index in range(2)]
    assert run_group(pair, write=lines.append, timeout=LIMIT).exit_code == 0, "\n".join(lines)
    alone = []
    single = [command(0, (), 3, -1)]
    assert run_group(single, write=alone.append, timeout=LIMIT).exit_code == 0, "\n".join(alone)
    both, one = weights(lines), weights(alone)
    assert both["[worker 0] "] == both["[worker 1] "]
    assert both["[worker 0] "] == pytest.approx(one["[worker 0] "], rel=1e-4)
    # TensorFlow has each block mapped anew, 256 pages of 4 KiB each, wherever it feeds replicas.
    pages = [int(line.split()[-1]) for line in lines if "pages of 100 blocks" in line]
    assert len(pages) == 2
    assert max(pages) < 2_000
    said = [line for line in lines if "keras_tpu_kit: Training on" in line]
    assert any("2 replicas on 2 workers on CPU" in line and "worker 1" in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["told", "untold"])
def test_batches_larger_on_one_worker_are_weighed_by_their_rows(told):
    where = addresses_on_loopback()
    script = str(pathlib.Path(__file__).with_name("unequal.py"))
    lines = []
    pair = [command(index, where, told, script=script) for index in range(2)]
    assert run_group(pair, write=lines.append, timeout=LIMIT).exit_code == 0, "\n".join(lines)
    said = [json.loads(line.partition("] ")[2]) for line in lines if '"weights"' in line]
    assert len(said) == 2
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(16, 3)), draw.normal(size=(16, 1))
    weights, losses = np.ones((3, 1)), []
    for _ in range(8):
        error = x @ weights - y
        losses.append(np.mean(error**2))
        weights = weights - 0.05 * 2 * x.T @ error / 16
    for each in said:
        np.testing.assert_allclose(each["weights"], weights.ravel(), rtol=1e-5)
        np.testing.assert_allclose(each["loss"], np.reshape(losses, (2, 4)).mean(axis=1), rtol=1e-5)


@pytest.mark.slow
def test_moving_statistics_are_the_mean_of_both_workers_and_evaluate_alike_once_saved(tmp_path):
    where = addresses_on_loopback()
    script = str(pathlib.Path(__file__).with_name("normalized.py"))
    lines = []
    pair = [command(index, where, tmp_path, script=script) for index in range(2)]
    assert run_group(pair, write=lines.append, timeout=LIMIT).exit_code == 0, "\n".join(lines)
    told = [json.loads(line.partition("] ")[2]) for line in lines if '"rows"' in line]
    assert len(told) == 2
    rows = [np.asarray(each["rows"]) for each in told]
    assert not np.array_equal(*rows)
    # Keras starts at mean 0 and variance 1, and moves by a hundredth.
    mean = 0.01 * np.mean([part.mean(axis=0) for part in rows], axis=0)
    variance = 0.99 + 0.01 * np.mean([part.var(axis=0) for part in rows], axis=0)
    for each in told:
        np.testing.assert_allclose(each["one step"], [mean, variance], rtol=1e-5)
        assert each["loaded"] == pytest.approx(each["evaluated"], rel=1e-5)
    # Why each replica has to read its own: TensorFlow takes a variable to be equal everywhere.
    assert sorted(each["mean"] for each in told) == [0.0, 1.0]
    assert told[0]["trained"] == told[1]["trained"]
    assert told[0]["evaluated"] == pytest.approx(told[1]["evaluated"], rel=1e-6)


@pytest.mark.slow
def test_a_worker_that_was_not_launched_together_ends_when_the_other_is_killed():
    where = addresses_on_loopback()
    lines = {0: [], 1: []}
    with (
        ProcessGroup([command(0, where, 400, 2)], write=lines[0].append) as survivor,
        ProcessGroup([command(1, where, 400, 2)], write=lines[1].append) as victim,
    ):
        assert victim.wait(LIMIT).exit_code == 128 + signal.SIGKILL, "\n".join(lines[1])
        outcome = survivor.wait(60)
    said = "\n".join(lines[0])
    assert not outcome.timed_out, said
    assert outcome.exit_code == 1, said
    assert "Worker 0 lost worker 1" in said
    assert "[worker-lost]" in said


@pytest.mark.slow
def test_sigterm_ends_a_worker_although_tensorflow_would_swallow_it():
    where = addresses_on_loopback()
    lines = []
    pair = [command(index, where, 10_000, -1) for index in range(2)]
    with ProcessGroup(pair, write=lines.append, grace=60) as group:
        deadline = time.monotonic() + LIMIT
        while not any("epoch 2" in line for line in lines) and time.monotonic() < deadline:
            time.sleep(0.1)
        group.ask_to_stop(signal.SIGTERM)
        outcome = group.wait(LIMIT)
    # One may see the other go first; neither had to be killed.
    assert 128 + signal.SIGTERM in outcome.exit_codes, "\n".join(lines)
    assert 128 + signal.SIGKILL not in outcome.exit_codes


@pytest.mark.slow
def test_a_worker_that_dies_while_tensorflow_connects_does_not_leave_the_other_waiting():
    where = addresses_on_loopback()
    connects = """if True:
        import tensorflow as tf
        from keras_tpu_kit.strategy import detect_strategy, workers
        workers._CONNECTION_SECONDS = 2
        detect_strategy(timeout=300)
    """
    comes_and_goes = f"""if True:
        from keras_tpu_kit.cluster import Cluster
        from keras_tpu_kit.strategy.deadline import Deadline
        from keras_tpu_kit.strategy.meeting import meet
        meet(Cluster({where!r}, 1), Deadline(300))
    """
    lines = []
    stays = Command(
        [sys.executable, "-c", connects],
        env={**QUIET, "TF_CONFIG": Cluster(where, 0).to_tf_config()},
    )
    goes = Command([sys.executable, "-c", comes_and_goes], env=QUIET)
    with (
        ProcessGroup([stays], write=lines.append) as left,
        ProcessGroup([goes], write=lines.append) as gone,
    ):
        assert gone.wait(LIMIT).exit_code == 0, "\n".join(lines)
        outcome = left.wait(LIMIT)
    assert not outcome.timed_out
    assert outcome.exit_code == 1
    assert any("find_workers" in line for line in lines)  # Where it hung,
    said = "\n".join(lines)  # and why.
    assert "[workers-not-connected]" in said
    assert where[1] in said[said.index("keras_tpu_kit: ") :]
