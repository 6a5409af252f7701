"""Runs a search's processes on this machine: a chief, its workers, and what replaces them.

Nothing here imports TensorFlow, so the process that watches the others stays small.
"""

from keras_tpu_kit.searching.environment import (
    EXIT_NO_CHIEF,
    EXIT_RETIRED,
    SearchOver,
    ServiceSettings,
)
from keras_tpu_kit.searching.shares import Machine, this_machine
from keras_tpu_kit.searching.supervisor import SearchSupervisor

__all__ = [
    "EXIT_NO_CHIEF",
    "EXIT_RETIRED",
    "Machine",
    "SearchOver",
    "SearchSupervisor",
    "ServiceSettings",
    "this_machine",
]
