"""Files are kept by the chief alone, each in one piece; every worker restores from them."""

import json
import pathlib

import keras
import numpy as np
import pytest

from keras_tpu_kit.replication.chief_files import files_of_the_chief

CALLBACKS = keras.callbacks


def fit(folder, is_chief, epochs=2, given=None):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    given = given or [
        CALLBACKS.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False),
        CALLBACKS.ModelCheckpoint(str(folder / "models" / "m-{epoch}.keras")),
        CALLBACKS.CSVLogger(str(folder / "log.csv")),
        CALLBACKS.TensorBoard(str(folder / "board")),
    ]
    paths = [vars(callback).copy() for callback in given]
    with files_of_the_chief(given, is_chief) as callbacks:
        history = model.fit(
            np.ones((4, 2)), np.ones((4, 1)), epochs=epochs, verbose=0, callbacks=callbacks
        )
    for callback, before in zip(given, paths, strict=True):
        for name in ("backup_dir", "_weights_path", "filepath", "filename", "log_dir"):
            assert vars(callback).get(name) == before.get(name)
    return history.epoch


def files(folder):
    return sorted(
        str(path.relative_to(folder)).split(".out.")[0]
        for path in folder.rglob("*")
        if path.is_file()
    )


KEPT = [
    "backup/latest.weights.h5",
    "backup/training_metadata.json",
    "board/train/events",
    "log.csv",
    "models/m-1.keras",
    "models/m-2.keras",
]


def test_the_chief_keeps_them_where_they_were_meant_for(tmp_path):
    (tmp_path / "models").mkdir()
    assert fit(tmp_path, is_chief=True) == [0, 1]
    assert files(tmp_path) == KEPT
    assert json.loads((tmp_path / "backup/training_metadata.json").read_text())["epoch"] == 2


def test_the_others_keep_nothing_but_go_on_from_the_chiefs_backup(tmp_path):
    assert fit(tmp_path, is_chief=False) == [0, 1]
    assert files(tmp_path) == []
    (tmp_path / "models").mkdir()
    fit(tmp_path, is_chief=True)
    before = (tmp_path / "backup/latest.weights.h5").read_bytes()
    assert fit(tmp_path, is_chief=False, epochs=5) == [2, 3, 4]
    assert files(tmp_path) == KEPT
    assert (tmp_path / "backup/latest.weights.h5").read_bytes() == before


def test_a_backup_that_dies_half_written_leaves_the_one_before(tmp_path):
    class Dies(CALLBACKS.BackupAndRestore):
        def _save_model(self, *args):
            if self._current_epoch == 2:
                pathlib.Path(self._weights_path).write_bytes(b"half")
                raise KeyboardInterrupt
            super()._save_model(*args)

    backup = Dies(str(tmp_path / "backup"), delete_checkpoint=False)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path, is_chief=True, given=[backup])
    assert json.loads((tmp_path / "backup/training_metadata.json").read_text())["epoch"] == 1
    assert (tmp_path / "backup/latest.weights.h5").read_bytes() != b"half"


@pytest.mark.parametrize("is_chief", [True, False])
def test_no_callbacks_one_and_a_list_object(is_chief):
    with files_of_the_chief(None, is_chief) as callbacks:
        assert callbacks is None
    one = CALLBACKS.EarlyStopping()
    with files_of_the_chief(one, is_chief) as callbacks:
        assert callbacks == [one]
    several = CALLBACKS.CallbackList([one])
    with files_of_the_chief(several, is_chief) as callbacks:
        assert callbacks is several
