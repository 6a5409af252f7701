import sys

import pytest

from keras_tpu_kit import KitError
from keras_tpu_kit.targets import load_target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_training_module.py").write_text(
        "VALUE = 7\ndef make():\n    pass\ndef _hidden():\n    pass\n"
    )
    (tmp_path / "my_broken_module.py").write_text("import a_module_that_nobody_has\n")
    yield tmp_path
    sys.modules.pop("my_training_module", None)


@pytest.mark.parametrize("spec", ["my_training_module:VALUE", "my_training_module.py:VALUE"])
def test_what_a_module_of_this_folder_holds_is_found(folder, spec):
    assert load_target(spec) == 7


@pytest.mark.parametrize("spec", ["no_such_module_here:VALUE", "no/such/file.py:VALUE", ":VALUE"])
def test_a_module_that_is_not_there_is_explained(folder, spec):
    with pytest.raises(KitError) as caught:
        load_target(spec)
    assert caught.value.finding.code == "target-module"


@pytest.mark.parametrize("spec", ["my_training_module:OTHER", "my_training_module"])
def test_a_name_that_is_not_there_is_explained_with_those_that_are(folder, spec):
    with pytest.raises(KitError, match="make") as caught:
        load_target(spec)
    assert caught.value.finding.code == "target-name"
    assert "_hidden" not in str(caught.value)


def test_what_the_module_itself_cannot_import_comes_through(folder):
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
        load_target("my_broken_module:VALUE")


def test_a_folder_that_python_knows_is_not_named_twice(folder):
    load_target("my_training_module:VALUE")
    load_target("my_training_module:make")
    assert sys.path.count(str(folder)) == 1
