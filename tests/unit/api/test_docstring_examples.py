"""Examples in docstrings of the public API."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "heronry.api.config",
    "heronry.api.topology",
    "heronry.streamlet.builder",
    "heronry.streamlet.monoid",
    "heronry.streamlet.stream",
)


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0
