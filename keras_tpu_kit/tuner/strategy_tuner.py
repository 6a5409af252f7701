"""The searches: any oracle's, and four named and called like KerasTuner's own."""

from __future__ import annotations

from typing import Any

import keras_tuner

from keras_tpu_kit.checks.search import THROUGHPUT_OBJECTIVES, check_oracle
from keras_tpu_kit.errors import SearchError, refuse
from keras_tpu_kit.tuner.engine import SearchEngine


class StrategyTuner(SearchEngine):
    """Searches with any oracle, every trial inside the strategy.

    Args:
        factory: A `ModelFactory`, a `keras_tuner.HyperModel`, or a function of the
            hyperparameters that returns a compiled model.
        oracle: A `keras_tuner.Oracle`. The two may change places, as in `keras_tuner.Tuner`.
        hypermodel: KerasTuner's name for the factory.
        **options: As the four searches take them.

    Raises:
        SearchError: If there is no oracle.
    """

    def __init__(
        self, factory: Any = None, oracle: Any = None, *, hypermodel: Any = None, **options: Any
    ) -> None:
        if isinstance(factory, keras_tuner.Oracle):
            factory, oracle = oracle, factory
        refuse(SearchError, check_oracle(isinstance(oracle, keras_tuner.Oracle)))
        super().__init__(oracle, hypermodel if factory is None else factory, **options)


class _Named(SearchEngine):
    """Lets an objective be one of the kit's own figures, by name; stands before KerasTuner's."""

    def __init__(
        self, hypermodel: Any = None, objective: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(hypermodel, as_objective(objective), *args, **kwargs)


class RandomSearch(_Named, keras_tuner.RandomSearch, SearchEngine):  # type: ignore[misc]
    """Searches at random."""


class BayesianOptimization(_Named, keras_tuner.BayesianOptimization, SearchEngine):  # type: ignore[misc]
    """Searches where a Gaussian process expects the most."""


class GridSearch(_Named, keras_tuner.GridSearch, SearchEngine):  # type: ignore[misc]
    """Searches every combination, in the grid's order."""


class Hyperband(_Named, keras_tuner.Hyperband, SearchEngine):  # type: ignore[misc]
    """Searches many trials for few epochs, and goes on with the best of them."""

    run_trial = SearchEngine.run_trial
    _build_hypermodel = SearchEngine._build_hypermodel


def as_objective(objective: Any) -> Any:
    """Returns an objective as KerasTuner takes it; it does not know which rates are better.

    Example:

    >>> as_objective("samples_per_second").direction
    'max'
    """
    if isinstance(objective, list):
        return [as_objective(each) for each in objective]
    if isinstance(objective, str) and objective in THROUGHPUT_OBJECTIVES:
        return keras_tuner.Objective(objective, THROUGHPUT_OBJECTIVES[objective])
    return objective
