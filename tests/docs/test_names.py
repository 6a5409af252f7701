"""What the package offers is sorted, documented, and told in the API reference."""

from __future__ import annotations

import inspect
import pathlib
import re

import pytest

import keras_tpu_kit as ktk

ROOT = pathlib.Path(__file__).parents[2]
NAMES = [name for name in ktk.__all__ if name != "__version__"]


def test_all_is_sorted_and_each_name_is_there():
    # As ruff sorts it: constants, then classes, then functions.
    def kind(name: str) -> tuple[int, str]:
        rank = 0 if name.isupper() else 1 if name[0].isupper() else 2
        return rank, name

    assert list(ktk.__all__) == sorted(ktk.__all__, key=kind)
    assert all(hasattr(ktk, name) for name in ktk.__all__)
    assert dir(ktk) == sorted(ktk.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_a_docstring_and_so_have_its_methods(name):
    value = getattr(ktk, name)
    if not callable(value):
        return
    assert value.__doc__ and value.__doc__[0].isupper()
    if inspect.isclass(value) and value.__module__.startswith("keras_tpu_kit"):
        for method, function in vars(value).items():
            if not method.startswith("_") and (
                inspect.isfunction(function) or isinstance(function, (classmethod, property))
            ):
                assert inspect.getdoc(function), f"{name}.{method}"


def test_the_api_reference_tells_every_public_name_once():
    page = (ROOT / "docs" / "api.md").read_text()
    told = re.findall(r"^::: keras_tpu_kit\.([\w.]+)$", page, flags=re.MULTILINE)
    assert sorted(name.split(".")[-1] for name in told) == sorted(NAMES)
