"""Where a search's files live: one directory, one search at a time."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from keras_tuner.src.distribute.utils import has_chief_oracle, is_chief_oracle

from keras_tpu_kit import report
from keras_tpu_kit.tuner.project import files
from keras_tpu_kit.tuner.project.durable import durable
from keras_tpu_kit.tuner.project.layout import OVER_FILE, project_exists
from keras_tpu_kit.tuner.project.location import local_directory
from keras_tpu_kit.tuner.project.lock import ProjectLock, refuse_if_in_use

# Set for a chief whose workers outlived the one before it.
WORKERS_ALIVE = "KERAS_TPU_KIT_WORKERS_ALIVE"
# In a trial's directory, while it runs.
BACKUP_DIRECTORY = "resume"


class Project:
    """The files of one search, and who may touch them.

    The tuner makes one before KerasTuner looks at the directory, and calls it at each moment
    of a search's life. The oracle becomes durable: its files are whole at any moment. A worker of
    a chief touches no file but its trials' own.

    Args:
        directory: The directory of many projects, on this machine or mounted on it.
        project_name: The name of this one.
        oracle: The search's own oracle, never a client of one.
        overwrite: Whether to forget what an earlier search left there.

    Raises:
        SearchError: `project-not-local`, for `gs://` and its like.
    """

    # Seconds of training between two saves of a running trial.
    backup_seconds = 30.0

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        project_name: str | None,
        oracle: Any,
        *,
        overwrite: bool = False,
    ) -> None:
        self.directory = local_directory(directory)
        self.project_name = project_name or "untitled_project"
        self.oracle = durable(oracle)
        self.oracle._set_project_dir(self.directory, self.project_name)
        self.overwrite = overwrite
        self._given_space = oracle.hyperparameters.copy()
        self._lock = ProjectLock(self.path)

    @property
    def path(self) -> str:
        """The project's own directory."""
        return str(pathlib.Path(self.directory, self.project_name))

    @property
    def is_worker(self) -> bool:
        """Whether a chief in another process keeps the files."""
        return has_chief_oracle() and not is_chief_oracle()

    def is_over(self, since: float = 0.0) -> bool:
        """Whether the search had no more trials when its last process, or its chief, ended.

        Args:
            since: Seconds since 1970; an end before that is another search's.
        """
        with contextlib.suppress(OSError):
            return pathlib.Path(self.path, OVER_FILE).stat().st_mtime >= since
        return False

    def prepare(self) -> None:
        """Is called before KerasTuner asks whether there is a project to reload.

        Raises:
            SearchError: `project-in-use`, where another search would lose its files.
        """
        if self.is_worker:
            return
        if self.overwrite and pathlib.Path(self.path).exists():
            refuse_if_in_use(self.path)
            shutil.rmtree(self.path)
        if project_exists(self.path):
            # The file holds nothing, but KerasTuner reloads only where it can read one.
            self.save_tuner_file(os.environ.get("KERASTUNER_TUNER_ID", "tuner0"))

    def save_tuner_file(self, tuner_id: str) -> None:
        """Writes the empty file by which KerasTuner knows a project, where it is not whole."""
        path = pathlib.Path(self.path, f"{tuner_id}.json")
        if not path.exists() or files.read_json(path).damage is not None:
            files.make_directory(path.parent)
            files.write_json(path, {})

    @contextlib.contextmanager
    def searching(self, tuner: Any) -> Iterator[None]:
        """Surrounds a search, from before the space is explored to after the last trial.

        Raises:
            SearchError: `project-in-use`, naming host and process of the other search.
            SearchStopped: On SIGTERM; the process ends with code 75 and can be started again.
        """
        if self.is_worker:
            yield
            return
        files.make_directory(self.path)
        with self._lock, self.oracle.interruption.watched(self.path):
            # Explored anew, so that it can be compared with the space of the search to go on with.
            self.oracle.hyperparameters = self._given_space.copy()
            pathlib.Path(self.path, OVER_FILE).unlink(missing_ok=True)
            yield

    def on_space_known(self) -> None:
        """Is called when the search space is explored, before the first trial.

        Raises:
            SearchError: `search-changed`.
        """
        if self.is_worker:
            return
        keep = is_chief_oracle() and os.environ.get(WORKERS_ALIVE) == "1"
        findings = self.oracle.begin(keep_ongoing=keep)
        if findings:
            report.show(*findings)

    def on_search_begin(self, tuner: Any) -> None:
        """Is called when the search space and the plan are known, before the first trial."""

    def on_trial_begin(self, trial: Any) -> None:
        """Is called when this process begins a trial."""

    def on_epoch_end(self, trial: Any, epoch: int) -> None:
        """Is called when an epoch was reported to the oracle; may raise to leave the search."""

    def backup_path(self, trial: Any) -> pathlib.Path:
        """The directory that a trial is saved to while it trains."""
        return self.oracle.trial_path(trial.trial_id) / BACKUP_DIRECTORY

    def on_trial_end(self, trial: Any) -> None:
        """Is called when the oracle knows how the trial ended."""
        shutil.rmtree(self.backup_path(trial), ignore_errors=True)

    def on_search_end(self) -> None:
        """Is called after the last trial of this process; notes that the search is over."""
        if not self.is_worker:
            with contextlib.suppress(OSError):
                pathlib.Path(self.path, OVER_FILE).touch()
