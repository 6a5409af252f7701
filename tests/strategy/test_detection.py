"""What is taken, what is refused and why, on a machine with eight logical CPU devices."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tpu_kit.errors import HardwareError
from keras_tpu_kit.processes import free_ports
from keras_tpu_kit.strategy import describe_strategy, detect_strategy, detection, explain_strategy
from keras_tpu_kit.strategy.outcome import Found, Request
from tests.replicas import replicas


@pytest.fixture(autouse=True)
def nothing_served_and_no_variables(monkeypatch):
    replicas(2)  # eight logical devices, before TensorFlow starts
    monkeypatch.setattr(detection, "_served", [])
    for name in ("TF_CONFIG", "TPU_NAME", "COLAB_TPU_ADDR", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def refused(**wishes):
    with pytest.raises(HardwareError) as caught:
        detect_strategy(**wishes)
    return caught.value.finding


def test_auto_takes_the_cpu_and_says_why_nothing_better():
    lines = []
    strategy = detect_strategy(log=lines.append)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert str(describe_strategy(strategy)) == "1 replica on CPU"
    (line,) = lines
    assert line.startswith("Training on 1 replica on CPU")
    assert "no TPU chip" in line
    assert "no GPU" in line
    assert explain_strategy(strategy) == line


def test_the_line_reaches_the_log_by_default(caplog):
    with caplog.at_level(logging.INFO, logger="keras_tpu_kit"):
        detect_strategy("cpu")
    assert caplog.messages == ["Training on 1 replica on CPU (every machine has one)."]


def test_a_second_call_returns_the_same_strategy_and_says_nothing():
    lines = []
    first = detect_strategy(simulate=4, log=lines.append)
    assert detect_strategy(log=lines.append) is first
    assert detect_strategy(simulate=4, log=lines.append) is first
    assert detect_strategy("cpu", log=lines.append) is first
    assert len(lines) == 1
    assert explain_strategy(first) == "Training on 4 replicas on CPU (simulate=4)."


def test_simulated_replicas_of_different_numbers_live_side_by_side():
    for count in (2, 4, 2):
        strategy = detect_strategy(simulate=count)
        assert strategy.num_replicas_in_sync == count
        with strategy.scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        model.fit(np.ones((8, 3), "f"), np.ones((8, 1), "f"), batch_size=8, verbose=0)


def test_one_simulated_replica_is_not_mirrored():
    assert isinstance(detect_strategy(simulate=1), tf.distribute.OneDeviceStrategy)


def test_too_many_simulated_replicas():
    finding = refused(simulate=99)
    assert finding.code == "simulate-too-late"
    assert "8 logical CPU devices" in finding.what
    assert "estart the runtime" in finding.fix
    assert detect_strategy(**finding.cures[0]).num_replicas_in_sync == 8


@pytest.mark.parametrize("name", ["CPU:3", "/cpu:3", "/device:CPU:3", "/physical_device:CPU:3"])
def test_a_chosen_device(name):
    topology = describe_strategy(detect_strategy(devices=[name]))
    assert topology.num_replicas == 1
    assert topology.devices[0].endswith("CPU:3")


def test_chosen_devices():
    topology = describe_strategy(detect_strategy(devices=["CPU:1", "CPU:5"]))
    assert [name[-5:] for name in topology.devices] == ["CPU:1", "CPU:5"]


@pytest.mark.parametrize("devices", [["GPU:0", "GPU:1"], ["CPU:0", "CPU:0"], [], ["disk"]])
def test_devices_that_cannot_be_used(devices):
    finding = refused(devices=devices)
    assert finding.code == "devices-missing"
    assert "CPU:7" in finding.why
    assert detect_strategy(**finding.cures[0]).num_replicas_in_sync == 1


@pytest.mark.parametrize(
    ("reduction", "kind"),
    [
        (None, tf.distribute.ReductionToOneDevice),
        ("one_device", tf.distribute.ReductionToOneDevice),
        ("hierarchical", tf.distribute.HierarchicalCopyAllReduce),
        (tf.distribute.HierarchicalCopyAllReduce(), tf.distribute.HierarchicalCopyAllReduce),
    ],
)
def test_reductions(reduction, kind):
    strategy = detect_strategy(simulate=2, reduction=reduction)
    assert type(strategy.extended._cross_device_ops) is kind


@pytest.mark.parametrize(
    ("wishes", "code"),
    [
        ({"simulate": 2, "reduction": "nccl"}, "nccl-without-gpu"),
        ({"simulate": 2, "reduction": "ring of fire"}, "unknown-reduction"),
        ({"accelerator": "quantum"}, "hardware-request"),
        ({"simulate": 0}, "hardware-request"),
        ({"simulate": "8"}, "hardware-request"),
        ({"devices": "CPU:0"}, "hardware-request"),
        ({"devices": [0, 1]}, "hardware-request"),
        ({"simulate": 2, "tpu": "local"}, "hardware-request"),
        ({"simulate": 2, "accelerator": "gpu"}, "hardware-request"),
        ({"tpu": "local", "accelerator": "gpu"}, "hardware-request"),
        ({"accelerator": "gpu"}, "gpu-missing"),
        ({"accelerator": "tpu"}, "tpu-missing"),
    ],
)
def test_wishes_that_cannot_be_met(wishes, code):
    finding = refused(**wishes)
    assert (finding.code, finding.severity) == (code, "error")
    for cure in finding.cures:
        detect_strategy(**{**wishes, **cure})


def test_missing_hardware_says_what_was_looked_for_and_found(monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v3-8")
    finding = refused(accelerator="tpu")
    for word in ("TPU_NAME", "PCI", "wheels: tensorflow", "TPU_ACCELERATOR_TYPE=v3-8"):
        assert word in finding.why


def test_an_address_where_nobody_listens():
    (port,) = free_ports(1)
    finding = refused(tpu=f"grpc://127.0.0.1:{port}", timeout=0.1)
    assert finding.code == "tpu-no-answer"
    assert f"127.0.0.1:{port} within 0.1 s" in finding.what


def test_a_variable_that_names_a_tpu_is_followed_and_auto_goes_on_without_it(monkeypatch):
    (port,) = free_ports(1)
    monkeypatch.setenv("COLAB_TPU_ADDR", f"127.0.0.1:{port}")
    lines = []
    strategy = detect_strategy(timeout=0.1, log=lines.append)
    assert describe_strategy(strategy).accelerator == "cpu"
    assert f"does not answer at 127.0.0.1:{port}" in lines[0]


def test_a_local_tpu_on_a_plain_wheel_fails_and_the_cpu_still_works(monkeypatch):
    finding = refused(tpu="local", timeout=300)  # A process that imports TensorFlow.
    assert finding.code == "tpu-failed"
    assert "ConfigureDistributedTPU" in finding.what
    monkeypatch.setenv("TPU_NAME", "local")
    strategy = detect_strategy(timeout=300)
    with strategy.scope():
        assert float(tf.Variable(2.0) * 2.0) == 4.0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{nonsense", "tf-config-malformed"),
        (
            '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
            "tf-config-task",
        ),
    ],
)
def test_a_tf_config_that_cannot_be_used(monkeypatch, text, code):
    monkeypatch.setenv("TF_CONFIG", text)
    assert refused().code == code


def test_one_worker_alone_is_no_cluster(monkeypatch):
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'
    )
    assert describe_strategy(detect_strategy("cpu")).num_workers == 1


def test_workers_that_do_not_come(monkeypatch):
    first, second = free_ports(2)
    monkeypatch.setenv(
        "TF_CONFIG",
        f'{{"cluster": {{"worker": ["127.0.0.1:{first}", "127.0.0.1:{second}"]}}, '
        '"task": {"type": "worker", "index": 0}}',
    )
    finding = refused(timeout=0.2)
    assert finding.code == "worker-absent"
    assert f"worker 1 (127.0.0.1:{second})" in finding.what


def test_nothing_comes_after_a_tpu_but_the_tpu_itself(monkeypatch):
    """The TPU is stood in for by a strategy that is only marked as one."""
    tpu = Found(tf.distribute.OneDeviceStrategy("/cpu:0"), "tpu", "", is_exclusive=True)
    served = detection._Served(Request("tpu"), tpu, "Training on a TPU.")
    monkeypatch.setattr(detection, "_served", [served])
    assert detect_strategy() is tpu.strategy
    assert detect_strategy("tpu") is tpu.strategy
    assert refused(accelerator="cpu").code == "strategy-exists"
    assert refused(tpu="other").code == "strategy-exists"


def test_two_strategies_with_collectives_do_not_live_side_by_side(monkeypatch):
    first = Found(replicas(2), "gpu", "", uses_collectives=True)
    monkeypatch.setattr(
        detection, "_served", [detection._Served(Request("gpu"), first, "On GPUs.")]
    )
    monkeypatch.setattr(
        detection,
        "simulate_replicas",
        lambda count, reduction: Found(replicas(4), "cpu", "", uses_collectives=True),
    )
    assert refused(simulate=4).code == "strategy-exists"
    assert detect_strategy(devices=["CPU:1"]).num_replicas_in_sync == 1


class TestDescription:
    def test_any_mirrored_strategy(self):
        topology = describe_strategy(replicas(4))
        assert (topology.accelerator, topology.num_replicas, topology.num_workers) == ("cpu", 4, 1)
        assert len(topology.devices) == 4
        assert topology.chip is None
        assert "without detect_strategy" in explain_strategy(tf.distribute.get_strategy())

    def test_the_default_strategy_and_the_one_in_scope(self):
        assert str(describe_strategy(tf.distribute.get_strategy())) == "1 replica on CPU"
        with replicas(2).scope():
            assert str(describe_strategy(tf.distribute.get_strategy())) == "2 replicas on CPU"

    def test_strategies_that_do_not_train_in_step(self):
        with pytest.raises(HardwareError) as caught:
            describe_strategy(tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]))
        assert caught.value.finding.code == "strategy-not-synchronous"
