"""What variables and device files say, read from a machine made of files."""

import sys

import pytest

from keras_tpu_kit.errors import HardwareError
from keras_tpu_kit.strategy import environment
from keras_tpu_kit.strategy.environment import (
    describe_surroundings,
    has_nvidia_driver,
    spare_the_metadata_query,
    tpu_accelerator_type,
    tpu_chips,
    tpu_in_environment,
)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, None),
        ({"TPU_NAME": ""}, None),
        ({"TPU_NAME": "local"}, ("local", "TPU_NAME")),
        ({"TPU_NAME": "a", "COLAB_TPU_ADDR": "b:1"}, ("a", "TPU_NAME")),
        (
            {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:1", "TPU_NAME": "b"},
            ("grpc://a:1", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"),
        ),
        ({"TPU_CONFIG": '{"tpu_node_name": "n"}'}, ("n", "TPU_CONFIG")),
        ({"COLAB_TPU_ADDR": "b:1"}, ("grpc://b:1", "COLAB_TPU_ADDR")),
        ({"COLAB_TPU_ADDR": "grpc://b:1"}, ("grpc://b:1", "COLAB_TPU_ADDR")),
    ],
)
def test_the_tpu_that_a_variable_names(variables, found):
    assert tpu_in_environment(variables) == found


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_tpu_config_that_cannot_be_read(text):
    with pytest.raises(HardwareError) as caught:
        tpu_in_environment({"TPU_CONFIG": text})
    assert caught.value.finding.code == "tpu-config-malformed"


def machine(root, devices=(), accels=0, driver=False):
    for place, (vendor, device) in enumerate(devices):
        folder = root / "sys/bus/pci/devices" / f"0000:00:{place:02}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "device").write_text(device + "\n")
    (root / "dev").mkdir()
    for place in range(accels):
        (root / "dev" / f"accel{place}").touch()
    if driver:
        (root / "proc/driver/nvidia").mkdir(parents=True)
        (root / "proc/driver/nvidia/version").touch()
    return root


def test_chips_on_the_pci_bus(tmp_path):
    cards = [("0x1ae0", "0x0063"), ("0x8086", "0x0063"), ("0x1ae0", "0x9999"), ("0x1ae0", "0x0027")]
    assert tpu_chips(machine(tmp_path, cards, accels=4)) == ["v5e", None]


def test_chips_as_device_files_where_the_bus_is_hidden(tmp_path):
    assert tpu_chips(machine(tmp_path, accels=4)) == [None] * 4


def test_a_machine_without_any(tmp_path):
    assert tpu_chips(machine(tmp_path)) == []
    assert not has_nvidia_driver(tmp_path)


def test_the_nvidia_driver(tmp_path):
    assert has_nvidia_driver(machine(tmp_path, driver=True))


def test_the_accelerator_type_is_the_variables_or_that_of_all_chips(monkeypatch):
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    monkeypatch.setattr(environment, "tpu_chips", lambda: ["v6e", "v6e"])
    assert tpu_accelerator_type() == "v6e"
    monkeypatch.setattr(environment, "tpu_chips", lambda: ["v6e", None])
    assert tpu_accelerator_type() is None
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v3-8")
    assert tpu_accelerator_type() == "v3-8"


@pytest.mark.parametrize(
    ("wheels", "chips", "started", "spared"),
    [
        ({"tensorflow-tpu": "2.19.1"}, [], False, True),
        ({"tensorflow-tpu": "2.19.1"}, [None], False, False),
        ({"tensorflow-tpu": "2.19.1"}, [], True, False),
        ({"tensorflow": "2.21.0"}, [], False, False),
    ],
)
def test_the_metadata_query_is_spared_only_where_it_can_hang(
    monkeypatch, wheels, chips, started, spared
):
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "")
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY")
    monkeypatch.setattr(environment, "installed_wheels", lambda: wheels)
    monkeypatch.setattr(environment, "tpu_chips", lambda: chips)
    modules = {"tensorflow": sys} if started else {}
    monkeypatch.setattr(environment.sys, "modules", modules)
    spare_the_metadata_query()
    assert ("TPU_SKIP_MDS_QUERY" in environment.os.environ) is spared


def test_surroundings_name_wheels_chips_and_variables(monkeypatch):
    monkeypatch.setenv("TPU_NAME", "mine")
    monkeypatch.setattr(environment, "installed_wheels", lambda: {"tensorflow": "2.21.0"})
    monkeypatch.setattr(environment, "tpu_chips", lambda: [None] * 4)
    text = describe_surroundings()
    assert "tensorflow 2.21.0" in text
    assert "TPU chips: 4" in text
    assert "TPU_NAME=mine" in text
