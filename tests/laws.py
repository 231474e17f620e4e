"""Laws, and mutations that each must notice: one runner for the modules that are made of them.

A law is a function that raises if it does not hold. A mutation is a bug somebody could write, put in with monkeypatch;
it comes with the law that has to notice it, which means that an assertion fails or a core raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

Law = Callable[[], None]
Mutation = Callable[[pytest.MonkeyPatch], None]
NOTICED = (AssertionError, IndexError, KeyError, OverflowError, ValueError)


def each_law(module: dict[str, Any]) -> Any:
    """The test that every function ``law_…`` of a module holds; give it ``globals()``."""
    laws = [law for name, law in sorted(module.items()) if name.startswith("law_")]

    @pytest.mark.parametrize("law", laws, ids=lambda law: law.__name__[4:])
    def test_law(law: Law) -> None:
        law()

    return test_law


def each_mutation(mutations: Sequence[tuple[Mutation, Law]]) -> Any:
    """The test that each law notices its mutation."""

    @pytest.mark.parametrize(("mutation", "law"), mutations, ids=[mutation.__name__ for mutation, _ in mutations])
    def test_each_law_notices_its_mutation(mutation: Mutation, law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
        mutation(monkeypatch)
        with pytest.raises(NOTICED):
            law()

    return test_each_law_notices_its_mutation
