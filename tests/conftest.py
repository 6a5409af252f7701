"""Settings that hold for all tests."""

from __future__ import annotations

import os

import hypothesis

# Before TensorFlow and Matplotlib are imported, here or in a child process.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")
# Readline, which pytest imports, leaves the size of a terminal to all child processes.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# Machines are busy at times, and no test shall fail for that.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
