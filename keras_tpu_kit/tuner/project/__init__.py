"""A search's files, which survive a kill at any moment, a full disk and a second search."""

from keras_tpu_kit.tuner.project.interruption import EXIT_RESUMABLE, SearchStopped
from keras_tpu_kit.tuner.project.project import Project

__all__ = ["EXIT_RESUMABLE", "Project", "SearchStopped"]
