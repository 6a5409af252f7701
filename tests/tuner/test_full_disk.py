"""A disk that is full: a search stops with that reason, and goes on when there is room."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import threading
from collections.abc import Iterator

import keras
import pytest

import keras_tpu_kit as ktk
from keras_tpu_kit.searching import ServiceSettings
from keras_tpu_kit.tuner.project import Project
from keras_tpu_kit.tuner.service import ChiefClient, ChiefServer
from tests.tuner import trials
from tests.tuner.commands import crashes
from tests.tuner.spaces import CPU, TRAIN, outcomes


@pytest.fixture
def disk(tmp_path) -> Iterator[pathlib.Path]:
    """Yields a directory on a disk of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(disk: pathlib.Path, free: int) -> None:
    """Leaves some bytes free."""
    (disk / "filler").unlink(missing_ok=True)
    space = os.statvfs(disk)
    (disk / "filler").write_bytes(b"\0" * (space.f_bavail * space.f_frsize - free))


def grow(disk: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)


def wide(hp):
    """Returns a model whose weights take 0.6 MB with those of its optimizer."""
    hidden = keras.layers.Dense(10_000)
    model = keras.Sequential([keras.Input((3,)), hidden, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(hp.Choice("lr", [0.0, 1e-8, 1e-7])), "mse")
    return model


def search(disk: pathlib.Path) -> ktk.GridSearch:
    return ktk.GridSearch(wide, "loss", directory=disk, project_name="p[1]", strategy=CPU)


def run(tuner: ktk.GridSearch) -> None:
    tuner.search(*TRAIN, batch_size=64, epochs=1, verbose=0)


@pytest.mark.slow
def test_weights_that_do_not_fit_stop_the_search_and_a_larger_disk_lets_it_finish(disk):
    # More often than a trial may kill its process: this one does not.
    for _ in range(4):
        tuner = search(disk)
        with pytest.raises(ktk.SearchError, match="No space left on device") as caught:
            run(tuner)
        assert caught.value.finding.code == "project-disk-full"
        assert ".weights.h5' could not be written" in caught.value.finding.what
    kept = tuner.results()
    assert [each["outcome"] for each in kept][:1] == ["finished"]
    assert not list(disk.rglob(".partial-*"))
    grow(disk)
    tuner = search(disk)
    run(tuner)
    assert outcomes(tuner) == ["finished"] * 3
    assert crashes(disk) == {}
    assert kept[0] in tuner.results()
    (best,) = tuner.get_best_models()
    assert best.evaluate(*TRAIN, verbose=0) == pytest.approx(tuner.results()[0]["score"], rel=0.05)


@pytest.mark.parametrize("free", [0, 4096, 8192, 16384, 32768])
def test_wherever_it_fills_the_reason_is_told_and_no_trial_is_lost(disk, free):
    expected = trials.run(disk.parent / "undisturbed", "grid")
    trials.run(disk, "grid", most=2)
    fill(disk, free)
    with pytest.raises(ktk.SearchError) as caught:
        trials.run(disk, "grid")
    assert caught.value.finding.code == "project-disk-full"
    (disk / "filler").unlink()
    assert trials.run(disk, "grid") == expected


def test_a_chief_whose_disk_is_full_ends_with_that_reason_and_no_worker_is_blamed(disk):
    token = "0123456789abcdef"
    project = Project(disk, "p[1]", trials.oracle("grid"))
    project.prepare()
    ended: list[BaseException] = []
    with project.searching(None):
        project.on_space_known()
        chief = ServiceSettings("chief", "127.0.0.1", 0, token)
        with ChiefServer(project.oracle, chief) as server:

            def serve() -> None:
                with contextlib.suppress(SystemExit):
                    try:
                        server.serve()
                    except ktk.SearchError as error:
                        ended.append(error)

            serving = threading.Thread(target=serve)
            serving.start()
            settings = ServiceSettings("worker0", "127.0.0.1", server.port, token, lost_seconds=1.0)
            worker = ChiefClient(trials.oracle("grid"), settings)
            trial = worker.create_trial("worker0")
            worker.update_trial(trial.trial_id, {"score": 1.0})
            fill(disk, 0)
            trial.status = "COMPLETED"
            with pytest.raises(ktk.SearchError) as lost:
                worker.end_trial(trial)
            serving.join(timeout=60)
    assert [error.finding.code for error in ended] == ["project-disk-full"]
    assert lost.value.finding.code == "chief-lost"
    (disk / "filler").unlink()
    assert trials.run(disk, "grid") == trials.run(disk.parent / "undisturbed", "grid")
