"""Filter that drops rows older than a limit and settles their ids."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.spout_collector import AgeFilter
from heronry.api.hooks import EmitInfo, TaskHook
from tests.support.harness.single_spout import SingleSpout


@given(st.integers(0, 2_000_000_000), st.integers(0, 5000), st.integers(0, 5000))
def test_filter_drops_exactly_the_rows_older_than_the_limit(now_seconds: int, age_ms: int, limit_ms: int) -> None:
    let_go: list[Any] = []
    keep = AgeFilter(lambda row: row[0], limit_ms, lambda: now_seconds, let_go.append)
    row, passes = (1000 * now_seconds - age_ms,), age_ms <= limit_ms
    assert [keep(row, "id", "default", None), keep(row, None, "default", None)] == [passes] * 2
    assert let_go == ([] if passes else ["id"])
    assert [keep.take_dropped(), keep.take_dropped()] == [0 if passes else 2, 0]


def test_spout_with_only_old_data_is_called_again_at_once() -> None:
    """Dropped rows count as output: the spout must not back off before newer data."""
    alone = SingleSpout({"topology.spout.drop.older.ms": 1000}, emit_time_ms=lambda self, values: -5000.0)
    for _ in range(20):
        alone.step(0.1)
    assert alone.spout.calls >= 20


def test_hooks_do_not_see_dropped_rows() -> None:
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
