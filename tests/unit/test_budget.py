"""What goes on by time: never less than its floor, and it ends."""

from __future__ import annotations

import pytest
from budget import Budget


def test_without_time_there_is_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERONRY_TIME", "0")
    budget = Budget(100.0, 3)
    assert [budget.more() for _ in range(5)] == [True, True, True, False, False]
    assert budget.used == 3


def test_while_time_lasts_there_is_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERONRY_TIME", raising=False)
    now = [0.0]
    monkeypatch.setattr("budget.time.monotonic", lambda: now[0])
    budget = Budget(10.0, 1)
    took = 0
    while budget.more():
        took += 1
        now[0] += 2.5
    assert took == 4


def test_where_time_is_spent_by_hand_the_clock_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERONRY_TIME", raising=False)
    now = [0.0]
    monkeypatch.setattr("budget.time.monotonic", lambda: now[0])
    budget = Budget(10.0, 0)
    budget.spend(4.0)
    now[0] = 1000.0
    assert budget.more()
    budget.spend(6.0)
    assert not budget.more()


def test_there_is_an_end_where_enough_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for times, tried in (("1", 3), ("0", 2), ("2", 6)):
        monkeypatch.setenv("HERONRY_TIME", times)
        budget = Budget(1000.0, 2, enough=3)
        while budget.more():
            assert budget.used <= tried
        assert budget.used == tried
