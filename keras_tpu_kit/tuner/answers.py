"""What users ask of a search that has run."""

from __future__ import annotations

import os
from typing import Any

from rich.table import Table

from keras_tpu_kit import report
from keras_tpu_kit.tuner.picture import draw_search
from keras_tpu_kit.tuner.project import Project
from keras_tpu_kit.tuner.results import ranked, table
from keras_tpu_kit.tuner.supervision import proposal_seconds


class SearchAnswers:
    """The part of a tuner that says what its trials came to."""

    project: Project

    def results(self) -> list[dict[str, Any]]:
        """Returns what each trial came to, the best first, as dicts of JSON types.

        Among them `score`, `best_epoch`, `outcome` and `reason`, `hyperparameters`, and under
        `metrics` all that was logged, with its value at the best epoch.
        """
        oracle = self.project.oracle
        return ranked(oracle.trials.values(), oracle.objective)

    def results_table(self, most: int | None = None) -> Table:
        """Returns the results as a table, for `print` or `rich.print`.

        Args:
            most: Rows to show, or `None` for all.
        """
        oracle = self.project.oracle
        return table(self.results(), oracle.objective, most, proposal_seconds(oracle))

    def results_summary(self, num_trials: int = 10) -> None:
        """Prints the best trials.

        Args:
            num_trials: Rows to show.
        """
        report.show(self.results_table(num_trials))

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws the objective over time, and against throughput with the Pareto front, as a PNG.

        Args:
            path: The file to write.
        """
        draw_search(self.results(), self.project.oracle.objective, path)
