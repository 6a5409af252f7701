"""One search at a time in a directory; a dead one is in nobody's way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from keras_tpu_kit.errors import SearchError
from keras_tpu_kit.tuner.project.location import local_directory
from keras_tpu_kit.tuner.project.lock import ProjectLock, refuse_if_in_use

# Loads the module by its path, so that the child need not wait for TensorFlow.
HOLDER = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("lock", sys.argv[1])
lock = importlib.util.module_from_spec(spec); sys.modules["lock"] = lock
spec.loader.exec_module(lock)
held = lock.ProjectLock(sys.argv[2]); held.acquire()
# A fork lets go as soon as it runs, so it is the one to say when.
if len(sys.argv) <= 3 or os.fork() == 0:
    print("held", flush=True)
time.sleep(60)
"""


def holder(directory, *arguments):
    path = sys.modules[ProjectLock.__module__].__file__
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path, str(directory), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def end(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SearchError, match="Not a directory") as caught:
        ProjectLock(tmp_path / "file" / "project").acquire()
    assert caught.value.finding.code == "project-cannot-be-locked"


def test_the_second_search_is_refused_with_host_and_process_of_the_first(tmp_path):
    process = holder(tmp_path)
    try:
        with pytest.raises(SearchError) as caught:
            ProjectLock(tmp_path).acquire()
        with pytest.raises(SearchError, match="is being searched"):
            refuse_if_in_use(tmp_path)
    finally:
        end(process)
    assert caught.value.finding.code == "project-in-use"
    assert f"process {process.pid} on {socket.gethostname()}" in caught.value.finding.what


def test_the_lock_of_a_killed_search_is_taken(tmp_path):
    end(holder(tmp_path))
    with ProjectLock(tmp_path) as lock:
        assert lock.is_held


def test_a_process_that_a_killed_search_has_forked_holds_nothing(tmp_path):
    process = holder(tmp_path, "forks")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    try:
        with ProjectLock(tmp_path) as lock:
            assert lock.is_held
    finally:
        end(process)


def test_two_searches_of_one_process_exclude_each_other_until_the_first_ends(tmp_path):
    first, second = ProjectLock(tmp_path), ProjectLock(tmp_path)
    with first, pytest.raises(SearchError, match=f"process {os.getpid()} "):
        second.acquire()
    with second:
        assert second.is_held and not first.is_held


@pytest.mark.parametrize("directory", ["gs://bucket/searches", "s3://bucket/x"])
def test_object_stores_are_refused(directory):
    with pytest.raises(SearchError, match="not a path of this machine"):
        local_directory(directory)
