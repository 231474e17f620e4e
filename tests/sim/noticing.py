"""That the laws of a simulated world notice a mutation, within a budget of schedules."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from budget import Budget

from .world import Violation


def assert_noticed(run: Callable[[int], object], law: str, budget: Budget) -> None:
    """Run schedules until one breaks a law; it must be this one (a pattern)."""
    while budget.more():
        broken = broken_law(run, budget.used)
        if broken:
            assert re.search(law, broken), f"seed {budget.used}: another law broke: {broken}"
            return
    pytest.fail(f"no schedule of {budget.used} noticed")


def broken_law(run: Callable[[int], object], seed: int) -> str:
    """The law that a schedule breaks; empty if all is well."""
    try:
        run(seed)
    except Violation as violation:
        return violation.law
    return ""
