"""What native code writes while it is loaded is kept back, and shown where loading fails."""

import os

import pytest

from keras_tpu_kit.cli.quiet import native_logs_kept, terminal


def test_native_logs_are_kept_back_and_the_terminal_is_still_there(capfd):
    with terminal() as own:
        with native_logs_kept():
            os.write(2, b"native noise\n")
            own.write("importing\n")
        os.write(2, b"after\n")

    assert sorted(capfd.readouterr().err.split()) == ["after", "importing"]


def test_where_loading_fails_the_logs_are_shown(capfd):
    with pytest.raises(ImportError), native_logs_kept():
        os.write(2, b"libnative.so: not found\n")
        raise ImportError

    assert capfd.readouterr().err == "libnative.so: not found\n"
