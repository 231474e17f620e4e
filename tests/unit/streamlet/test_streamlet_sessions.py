"""Session windows: records in any order, one close per session, checkpoints and restores."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from heronry import TopologyError
from heronry.streamlet import Builder, Windowed, collect, count, monoid, session, view
from heronry.streamlet.combine import Session, SessionTable, put
from heronry.streamlet.online.session_state import SessionReducerState
from heronry.streamlet.online.state import ReducerEntry
from heronry.streamlet.reference import run

SEEDS = range(150)
GAP = 5
WORDS = monoid(tuple, lambda a, b: tuple(sorted(a + b)), name="words")


def truth(times: list[int]) -> list[tuple[int, int, int]]:
    """Return (first, last, count) of each session, computed naively."""
    found: list[list[int]] = []
    for time in sorted(times):
        if found and time - found[-1][-1] <= GAP:
            found[-1].append(time)
        else:
            found.append([time])
    return [(each[0], each[-1], len(each)) for each in found]


def test_sessions_do_not_depend_on_order_or_grouping() -> None:
    for seed in SEEDS:
        draw = random.Random(seed)
        times = [draw.randrange(60) for _ in range(draw.randrange(20))]
        tables = [SessionTable() for _ in range(draw.randrange(1, 4))]
        for time in times:
            draw.choice(tables).put("k", Session(time, time, 1), GAP, int.__add__)
        assert [len(table.get("k", ())) for table in tables] == [table.size for table in tables]
        draw.shuffle(tables)
        together: list[Session] = []
        for table in tables:
            for one in table.get("k", ()):
                put(together, one, GAP, int.__add__)
        assert [(one.start, one.last, one.acc) for one in together] == truth(times)


class Task:
    """Reducer table as its bolt uses it: rows, watermarks, checkpoints and restores."""

    def __init__(self, wait_ms: int) -> None:
        self._wait_ms = wait_ms
        self.state = self.begin()
        self.kept: dict[tuple[Any, int], Any] = {}
        self.shown: list[ReducerEntry] = []
        self.late: list[Any] = []

    def begin(self) -> SessionReducerState:
        return SessionReducerState(WORDS, GAP, self._wait_ms)

    def add(self, key: Any, times: list[int]) -> None:
        rows = [(key, first, (last, tuple(range(number)))) for first, last, number in truth(times)]
        self.late += [rows[place] for place in self.state.add_rows(rows)]

    def close(self, watermark_ms: int) -> None:
        self.shown += [entry for _, entries in self.state.close(watermark_ms) for entry in entries]

    def checkpoint(self) -> None:
        dropped, changed = self.state.take_changed()
        for start, key in dropped:
            self.kept.pop((key, start), None)
        self.kept.update({(key, start): acc for start, key, acc in changed})

    def restore(self) -> None:
        self.checkpoint()
        closed_ms, self.state = self.state.closed_ms, self.begin()
        self.state.restore([ReducerEntry(start, key, acc) for (key, start), acc in self.kept.items()], closed_ms)
        assert self.state.due() == []


def worked(seed: int, disorder: int, wait_ms: int) -> tuple[dict[Any, list[int]], Task]:
    """Run records that are up to ``disorder`` ms late through a task, with checkpoints and restores between rows."""
    draw = random.Random(seed)
    task, seen = Task(wait_ms), {key: [] for key in ("a", ("b", 1))}  # type: dict[Any, list[int]], Task
    now = 0
    for _ in range(draw.randrange(40)):
        now += draw.randrange(8)
        key = draw.choice(list(seen))
        times = [now - draw.randrange(disorder + 1) for _ in range(draw.randrange(1, 4))]
        seen[key] += times
        task.add(key, times)
        if draw.random() < 0.5:
            task.close(now)
        if draw.random() < 0.2:
            draw.choice([task.checkpoint, task.restore])()
        task.state.check()
    task.close(1 << 40)
    task.checkpoint()
    assert task.kept == {}, "what is closed is kept"
    assert len(task.state) == 0
    return seen, task


def test_each_session_is_emitted_once_without_late_records() -> None:
    for seed in SEEDS:
        seen, task = worked(seed, disorder=6, wait_ms=7)
        assert task.late == []
        shown = Counter((entry.key, entry.start, entry.acc[0], len(entry.acc[1])) for entry in task.shown)
        assert shown == Counter((key, *each) for key, times in seen.items() for each in truth(times))


def test_late_records_are_reported_and_none_is_lost() -> None:
    for seed in SEEDS:
        seen, task = worked(seed, disorder=30, wait_ms=1)
        numbers = Counter({key: len(times) for key, times in seen.items() if times})
        for entry in task.shown:
            numbers[entry.key] -= len(entry.acc[1])
        for key, _, (_, acc) in task.late:
            numbers[key] -= len(acc)
        assert not +numbers
        assert not -numbers


def test_late_row_joins_an_open_session() -> None:
    task = Task(1)
    task.add("a", [10, 20, 25])  # 10 is a session of its own
    task.close(25)
    assert [(e.start, e.acc[0]) for e in task.shown] == [(10, 10)]
    task.add("a", [16])  # its own session would end at 21, but it touches the open one
    task.add("a", [9])  # would end at 14, and touches no session
    assert [row[1] for row in task.late] == [9]
    task.close(100)
    assert [(e.start, e.acc[0], len(e.acc[1])) for e in task.shown[1:]] == [(16, 25, 3)]


def sessions_of(times: list[int]) -> list[Windowed]:
    builder = Builder("p")
    timed = builder.source([{"t": t, "k": "a"} for t in times], event_time="t", unit="ms")
    timed.key_by("k").window(session(0.005)).count_by_key().sink(collect(), name="out")
    return run(builder.build())["out"]


def test_records_one_gap_apart_share_a_session() -> None:
    assert sessions_of([12, -3, 7, 2, 13, 30]) == [Windowed("a", -3, 18, 5), Windowed("a", 30, 35, 1)]
    assert sessions_of([0, 6]) == [Windowed("a", 0, 5, 1), Windowed("a", 6, 11, 1)]


def test_invalid_session_window_is_rejected() -> None:
    with pytest.raises(TopologyError, match="the gap of a session window"):
        session(0)
    builder = Builder("p")
    counts = builder.source(range(3), event_time=int).key_by().window(session(1)).reduce_by_key(count(), name="c")
    counts.sink(view("v", "/nowhere"))
    with pytest.raises(TopologyError, match="stands behind the sessions of 'c'"):
        builder.build()
