"""Files are whole or not there, whenever their writer dies and whatever their reader finds."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import resource

import pytest

from keras_tpu_kit.errors import SearchError
from keras_tpu_kit.tuner.project import files

OLD, NEW = {"version": "old"}, {"version": "new"}


class Died(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.mark.parametrize("step", range(1, 9))
def test_a_writer_that_dies_at_any_step_leaves_the_old_or_the_new_version(
    tmp_path, monkeypatch, step
):
    path = tmp_path / "oracle.json"
    files.write_json(path, {"version": "older"})
    files.write_json(path, OLD)
    count = 0
    with monkeypatch.context() as patched:
        for owner, name in ((os, "fsync"), (os, "link"), (pathlib.Path, "replace")):
            original = getattr(owner, name)

            def dies(*args, original=original):
                nonlocal count
                count += 1
                if count == step:
                    raise Died
                return original(*args)

            patched.setattr(owner, name, dies)
        with contextlib.suppress(Died):
            files.write_json(path, NEW)
    assert count == min(step, 5), "file synced, linked, two renamings, directory synced"
    assert files.read_json(path) in (files.Reading(OLD), files.Reading(NEW))
    path.unlink()
    previous = files.read_json(path)
    assert previous.is_previous and previous.value["version"] in ("older", "old")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_text('{"version": "n'), "is cut off or garbled (14 bytes)"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"\0" * 9), "is cut off or garbled (9 bytes)"),
        (lambda path: path.write_text("[1]"), "is not a JSON object"),
        (lambda path: path.unlink(), "is missing"),
    ],
)
def test_a_damaged_file_gives_the_version_before_and_says_what_is_wrong(tmp_path, damage, says):
    path = tmp_path / "trial.json"
    files.write_json(path, OLD)
    files.write_json(path, NEW)
    damage(path)
    assert files.read_json(path) == files.Reading(OLD, says, is_previous=True)


def test_a_file_that_never_was_is_not_called_damaged(tmp_path):
    assert files.read_json(tmp_path / "none.json") == files.Reading(None)


def test_a_full_disk_is_named_and_the_old_version_stays(tmp_path):
    path = tmp_path / "oracle.json"
    files.write_json(path, OLD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(SearchError, match="could not be written") as caught:
            files.write_json(path, {"text": "x" * 2_000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.finding.code == "project-disk-full"
    assert files.read_json(path) == files.Reading(OLD)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["oracle.json"]
    files.write_json(path, {"text": "x" * 2_000})
    assert files.read_json(path).value == {"text": "x" * 2_000}


def test_no_space_left_is_recognised_by_number_and_by_what_libraries_make_of_it():
    full = OSError(errno.ENOSPC, "No space left on device")
    from_h5py = OSError("Can't write data (errno = 28, error message = 'No space left on device')")
    assert files.disk_full_finding(full, "a").code == "project-disk-full"
    assert files.disk_full_finding(from_h5py, "a").code == "project-disk-full"
    assert files.disk_full_finding(OSError(errno.EACCES, "Permission denied"), "a") is None


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a full device")
def test_a_line_that_does_not_fit_on_the_device_stops_with_the_reason():
    with pytest.raises(SearchError, match="No space left on device"):
        files.append_line("/dev/full", NEW)


def test_a_torn_last_line_swallows_neither_the_next_nor_those_before(tmp_path):
    path = tmp_path / "trials.jsonl"
    files.append_line(path, OLD)
    with path.open("a") as file:
        file.write('{"version": "to')
    files.append_line(path, NEW)
    assert files.read_lines(path) == [OLD, NEW]


def test_what_dead_writers_left_is_removed(tmp_path):
    (tmp_path / f"{files.TEMPORARY}-17-oracle.json").write_text("{")
    files.write_json(tmp_path / "oracle.json", NEW)
    files.remove_partial_files(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["oracle.json"]
    assert json.loads((tmp_path / "oracle.json").read_text()) == NEW
