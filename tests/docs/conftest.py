"""Docs, doctests and examples share one process per file, with eight logical CPU devices."""

from tests.replicas import MOST, replicas

replicas(MOST)
