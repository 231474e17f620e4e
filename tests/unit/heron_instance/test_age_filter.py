"""Data that is too old is dropped: exactly what is older than the limit, and its ids are let go."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.spout_collector import AgeFilter
from heronry.api.hooks import EmitInfo, TaskHook
from tests.support.harness.single_spout import SingleSpout


@given(st.integers(0, 2_000_000_000), st.integers(0, 5000), st.integers(0, 5000))
def test_what_is_older_than_the_limit_is_dropped(now_seconds: int, age_ms: int, limit_ms: int) -> None:
    let_go: list[Any] = []
    keep = AgeFilter(lambda row: row[0], limit_ms, lambda: now_seconds, let_go.append)
    row, passes = (1000 * now_seconds - age_ms,), age_ms <= limit_ms
    assert [keep(row, "id", "default", None), keep(row, None, "default", None)] == [passes] * 2
    assert let_go == ([] if passes else ["id"])
    assert [keep.take_dropped(), keep.take_dropped()] == [0 if passes else 2, 0]


def test_a_spout_whose_data_is_all_too_old_is_asked_on_at_once() -> None:
    """It had something, and what is young enough comes behind it."""
    alone = SingleSpout({"topology.spout.drop.older.ms": 1000}, emit_time_ms=lambda self, values: -5000.0)
    for _ in range(20):
        alone.step(0.1)
    assert alone.spout.calls >= 20


def test_hooks_are_not_told_of_what_is_dropped() -> None:
    seen: list[Any] = []

    class Sees(TaskHook):
        def emit(self, info: EmitInfo) -> None:
            seen.append(info.values)

    def emit_time_ms(self: Any, values: Any) -> float:
        return -5000.0 if self.n % 2 else 0.0

    alone = SingleSpout({"topology.spout.drop.older.ms": 1000}, emit_time_ms=emit_time_ms, total=10)
    alone.spout.context.add_task_hook(Sees())
    for _ in range(20):
        alone.step(1)
    assert alone.spout.n == 10
    assert len(seen) == 5
