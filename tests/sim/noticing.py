"""That the laws of a simulated world notice mutations: one register for every kind of world.

A mutation is a bug somebody could write, put in with monkeypatch. Then schedules run until one of them breaks a law;
the words of that law must be the expected ones, so that it is the right checker that has noticed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from budget import Budget

from .world import Violation

Change = Callable[[pytest.MonkeyPatch], None]


@dataclass
class Mutations:
    """Of one kind of world. ``run`` runs the schedule of a seed; a mutation counts as not noticed when as many of them
    as ``floor``, and those of so many seconds, have missed it."""

    run: Callable[[int], object]
    floor: int
    seconds: float
    found: dict[str, tuple[Change, str, int]] = field(default_factory=dict)

    def breaks(self, law: str, first: int = 1) -> Callable[[Change], Change]:
        """Register a mutation and a pattern for the laws it breaks; ``first`` is a seed to begin with."""

        def register(change: Change) -> Change:
            assert change.__name__ not in self.found, "each has a name of its own"
            self.found[change.__name__] = (change, law, first)
            return change

        return register

    def test(self) -> Any:
        """The test that each of them is noticed."""

        @pytest.mark.timeout(600)
        @pytest.mark.parametrize("name", self.found)
        def test_a_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
            change, law, first = self.found[name]
            change(monkeypatch)
            self._assert_noticed(law, first)

        return test_a_mutation_is_noticed

    def _assert_noticed(self, law: str, first: int) -> None:
        budget = Budget(self.seconds, self.floor)
        while budget.more():
            seed = first + budget.used - 1
            broken = broken_law(self.run, seed)
            if broken:
                assert re.search(law, broken), f"seed {seed}: another law broke: {broken}"
                return
        pytest.fail(f"no schedule of {budget.used} noticed")


def broken_law(run: Callable[[int], object], seed: int) -> str:
    """The law that a schedule breaks, or what a core raises; empty if all is well."""
    try:
        run(seed)
    except Violation as violation:
        return violation.law
    except (AssertionError, KeyError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
