"""What depends on whether TensorFlow has started, each in a process of its own."""

import sys
import textwrap

import pytest

from keras_tpu_kit.processes import run_limited


def run(code, **env):
    base = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_CONFIG": "{}"}
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    exit_code, output = run_limited(argv, timeout=240, env={**base, **env})
    assert exit_code == 0, output
    return output


def test_simulate_comes_first_and_the_user_sees_one_line():
    output = run("""
        import keras_tpu_kit as ktk
        strategy = ktk.detect_strategy(simulate=3)
        assert ktk.describe_strategy(strategy).num_replicas == 3
        assert ktk.detect_strategy() is strategy
    """)
    said = [line for line in output.splitlines() if line.startswith("keras_tpu_kit:")]
    assert said == ["keras_tpu_kit: Training on 3 replicas on CPU (simulate=3)."]


def test_simulate_after_tensorflow_has_started_asks_for_a_restart():
    output = run("""
        import tensorflow as tf
        import keras_tpu_kit as ktk
        tf.zeros(1)
        try:
            ktk.detect_strategy(simulate=8)
        except ktk.HardwareError as error:
            print(error)
    """)
    assert "Restart the runtime" in output
    assert "TensorFlow fixes its devices at the first operation" in output


@pytest.mark.slow
def test_a_port_that_answers_but_is_no_tensorflow_ends_in_time():
    output = run("""
        import socket, time
        import keras_tpu_kit as ktk
        from keras_tpu_kit.strategy.deadline import Deadline
        with socket.create_server(("127.0.0.1", 0)) as server:
            begun = time.monotonic()
            try:
                ktk.detect_strategy(tpu=f"grpc://127.0.0.1:{server.getsockname()[1]}", timeout=2)
            except ktk.HardwareError as error:
                print(error.finding.code, error.finding.what)
                # Not the time is tested, only that it ends at all: TensorFlow waited for ever.
                assert time.monotonic() - begun < 120
    """)
    assert "tpu-failed" in output
    assert "did not end within 2 s" in output


def test_importing_the_strategies_does_not_import_tensorflow():
    assert "False" in run("""
        import sys
        import keras_tpu_kit.strategy
        print("tensorflow" in sys.modules)
    """)
