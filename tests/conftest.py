"""Settings that hold for all tests."""

from __future__ import annotations

import os

import hypothesis

# Before TensorFlow and Matplotlib are imported, here or in a child process.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("MPLBACKEND", "agg")

# Machines are busy at times, and no test shall fail for that.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
