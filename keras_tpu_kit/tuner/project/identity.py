"""What makes a search this search: its oracle, its objective and its space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_tpu_kit.errors import Finding

# Settings that a resumed search may change: how far it goes, not what it looks for.
_ALGORITHM_SETTINGS = ("max_epochs", "factor", "num_initial_points", "alpha", "beta")


def identity_of(oracle: Any, name: str) -> dict[str, Any]:
    """Returns what a resumed search must have in common with the one that began, as JSON types.

    Args:
        oracle: A KerasTuner oracle that knows its search space.
        name: The name of its class.
    """
    return {
        "oracle": name,
        "settings": {
            setting: getattr(oracle, setting)
            for setting in _ALGORITHM_SETTINGS
            if hasattr(oracle, setting)
        },
        "objective": str(oracle.objective),
        "space": oracle.hyperparameters.get_config()["space"],
    }


def changed_search_finding(
    saved: Mapping[str, Any], current: Mapping[str, Any], project: str
) -> Finding | None:
    """Returns `search-changed` where a project was begun with another search.

    Args:
        saved: What `identity_of` gave when the project began.
        current: What it gives now.
        project: The project's directory.

    Example:

    >>> was = {"oracle": "RandomSearchOracle", "settings": {}, "objective": "a", "space": []}
    >>> print(changed_search_finding(was, {**was, "objective": "b"}, "p").what)
    The project 'p' was begun with another search: objective was a, is b.
    """
    differences = _differences(saved, current)
    if not differences:
        return None
    return Finding(
        "search-changed",
        "error",
        f"The project {project!r} was begun with another search: {'; '.join(differences)}.",
        "Its finished trials answer another question, and mixing them with new ones would pick "
        "a winner by numbers that cannot be compared.",
        "Put it back as it was to go on, pass another project_name to keep both, or pass "
        "overwrite=True to delete the old trials and start again.",
    )


def _differences(saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    found = [
        f"{what} was {saved[what]}, is {current[what]}"
        for what in ("oracle", "objective")
        if saved[what] != current[what]
    ]
    if saved["oracle"] == current["oracle"]:
        found += _changes("", saved["settings"], current["settings"])
    found += _changes("hyperparameter ", _by_name(saved["space"]), _by_name(current["space"]))
    return found


def _changes(kind: str, saved: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    found = []
    for name in [*saved, *(name for name in current if name not in saved)]:
        if name not in current:
            found.append(f"{kind}{name} is gone")
        elif name not in saved:
            found.append(f"{kind}{name} is new")
        elif saved[name] != current[name]:
            found.append(f"{kind}{name} was {saved[name]}, is {current[name]}")
    return found


def _by_name(space: list[dict[str, Any]]) -> dict[str, str]:
    """Returns each hyperparameter as the text that shows its type, range and conditions."""
    described: dict[str, str] = {}
    for entry in space:
        config = dict(entry["config"])
        name = str(config.pop("name"))
        if not config.get("conditions"):
            config.pop("conditions", None)
        settings = ", ".join(f"{key}={value!r}" for key, value in config.items())
        text = f"{entry['class_name']}({settings})"
        described[name] = f"{described[name]} or {text}" if name in described else text
    return described
