"""Whether Keras can run on TensorFlow here, told by versions and settings, without importing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import pickle
import sys
import types

import pytest

from keras_tpu_kit import BackendError, backend


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with TensorFlow and a current Keras, of which nothing is imported yet."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    install(monkeypatch, {"keras": "3.15.1", "tensorflow": "2.21.0"})
    monkeypatch.delitem(sys.modules, "keras", raising=False)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))


def install(monkeypatch, versions):
    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "version", version)


def test_a_right_machine_has_no_problem():
    assert backend.problem() is None
    assert backend.require_tensorflow() is None
    assert backend.installed_wheels() == {"tensorflow": "2.21.0"}


def test_without_tensorflow_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError) as caught:
        backend.require_tensorflow()
    assert caught.value.finding.code == "tensorflow-missing"
    assert backend.INSTALL_TENSORFLOW in caught.value.finding.fix
    assert isinstance(caught.value, ImportError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_two_wheels_are_both_seen(monkeypatch):
    versions = {"tensorflow": "2.21.0", "tensorflow-tpu": "2.19.1"}
    install(monkeypatch, versions)
    assert backend.installed_wheels() == versions


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("3.11.3", True), ("2.15.0", True), ("3.12.0", False), ("4.0.0", False), (None, False)],
)
def test_keras_older_than_the_trainer_that_is_known(monkeypatch, version, is_old):
    install(monkeypatch, {} if version is None else {"keras": version})
    finding = backend.problem()
    assert (finding is not None and finding.code == "keras-too-old") == is_old


def test_the_backend_is_read_where_keras_reads_it(monkeypatch, tmp_path):
    assert backend.keras_backend() == "tensorflow"
    settings = tmp_path / "keras.json"
    settings.write_text('{"backend": "torch"}')
    assert backend.keras_backend() == "torch"
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert backend.keras_backend() == "jax"
    finding = backend.problem()
    assert finding is not None and finding.code == "keras-backend" and "'jax'" in finding.what
    config = types.SimpleNamespace(backend=lambda: "tensorflow")
    monkeypatch.setitem(sys.modules, "keras", types.SimpleNamespace(config=config))
    assert backend.keras_backend() == "tensorflow"


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json"])
def test_settings_that_say_nothing_leave_the_default(tmp_path, text):
    (tmp_path / "keras.json").write_text(text)
    assert backend.keras_backend() == "tensorflow"


def test_keras_home_follows_its_variable(monkeypatch, tmp_path):
    assert backend.keras_home() == tmp_path
    monkeypatch.delenv("KERAS_HOME")
    assert backend.keras_home() == pathlib.Path("~/.keras").expanduser()
