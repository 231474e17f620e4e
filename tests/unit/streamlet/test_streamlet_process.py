"""``process``: handler calls in the reference, and online state compared with the reference.

Records arrive in any order, with checkpoints in between.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from heron_runtime.model.keys import encode
from heronry import TopologyError
from heronry.streamlet import Builder, Context, Process, collect, tumbling, view
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.process_state import ProcessReducerState, kept_of
from heronry.streamlet.online.state import ReducerEntry
from heronry.streamlet.online.watermark import FOREVER
from heronry.streamlet.process import MOST_ALONE, KeyMemory, handlers_of
from heronry.streamlet.reference import run

Record = tuple[str, int, int]  # key, ms, value


class Visits(Process):
    """Process that ends 9 ms after a key's last record and ticks from the first one; value 0 cancels the ticks."""

    def on_record(self, context: Context, record: Record) -> None:
        seen = context.state or []
        context.emit(("record", context.key, context.time_ms, record[2], len(seen)))
        context.state = [*seen, record[2]]
        context.set_timer(context.time_ms + 9, "end")
        if not seen:
            context.set_timer(context.time_ms - 5, "tick")
        if record[2] == 0:
            context.cancel_timer("tick")

    def on_timer(self, context: Context, name: str) -> None:
        context.emit((name, context.key, context.time_ms, len(context.state)))
        if name == "end":
            context.state = None
            context.cancel_timer("tick")
        else:
            context.set_timer(context.time_ms + 4, "tick")


def told(handlers: Any, records: list[Any], failed: list[Any] | None = None) -> list[Any]:
    builder = Builder("p")
    keyed = builder.source(records, event_time=1, unit="ms").key_by(0)
    keyed.process(handlers, name="told").sink(collect(), name="out")
    return run(builder.build(), failed=failed)["out"]


def drawn(draw: random.Random) -> list[Record]:
    return [(draw.choice("abc"), draw.randrange(-20, 60), draw.randrange(3)) for _ in range(draw.randrange(25))]


def test_results_do_not_depend_on_record_order() -> None:
    for seed in range(60):
        draw = random.Random(seed)
        records = drawn(draw)
        found = told(Visits, records)
        draw.shuffle(records)
        assert told(Visits, records) == found


def test_online_state_equals_the_reference() -> None:
    """Rows arrive in disorder within the lateness; occasionally another task resumes from a checkpoint."""
    for seed in range(120):
        draw = random.Random(seed)
        records = drawn(draw)
        records.sort(key=lambda record: record[1] + draw.randrange(12))
        handlers, pack, unpack = handlers_of(Visits), *kept_of("told")
        state, kept = ProcessReducerState("told", handlers, 12), dict[Any, dict[Any, Any]]()
        out: list[Any] = []

        def shown(closed: list[tuple[int, list[ReducerEntry]]], out: list[Any] = out) -> None:
            out += [entry.acc.record for _, entries in closed for entry in entries]
            assert all(entry.start == entry.acc.time_ms for _, entries in closed for entry in entries)

        latest = -1000
        for key, time_ms, value in records:
            assert state.add_rows([(key, time_ms, [(key, time_ms, value)])]) == []
            latest = max(latest, time_ms)
            if draw.random() < 0.5:
                shown(state.close(latest))
            if draw.random() < 0.2:
                dropped, changed = state.take_changed()
                for start, name in dropped:
                    kept.get(name, {}).pop(start, None)
                for entry in changed:
                    kept.setdefault(entry.key, {})[entry.start] = pack(entry.acc)
                state.check()
                closed_ms, state = state.closed_ms, ProcessReducerState("told", handlers, 12)
                rows = [
                    ReducerEntry(start, name, unpack(acc)) for name, own in kept.items() for start, acc in own.items()
                ]
                state.restore(rows, closed_ms)
                state.check()
        shown(state.close(FOREVER))
        state.check()
        assert len(state) == 0
        assert state._keys == {}, "what has ended is forgotten"
        assert Counter(out) == Counter(told(Visits, records))


class Diary(Process):
    """Process that emits its calls; the third field of a record selects its action."""

    def on_record(self, context: Context, record: Any) -> None:
        context.emit((context.time_ms, record[2]))
        if isinstance(record[2], dict):
            for name, at_ms in record[2].items():
                context.set_timer(at_ms, name)
        elif record[2] == "fail":
            context.state = "lost"
            context.set_timer(context.time_ms, "lost")
            raise ValueError("asked for")

    def on_timer(self, context: Context, name: str) -> None:
        context.emit((context.time_ms, name))
        if name == "for ever":
            context.set_timer(context.time_ms, name)
        elif name == "fail":
            raise ValueError("asked for")


def in_time(found: list[Any]) -> list[Any]:
    return [what for _, what in sorted(found, key=lambda pair: pair[0])]


def test_timers_fire_in_order_after_records_of_the_same_time() -> None:
    records = [("k", 10, {"c": 20, "b": 15, "a": 20, "past": 3}), ("k", 15, "x"), ("k", 20, "y"), ("k", 30, "z")]
    seen: list[Any] = []

    class Ordered(Diary):
        def on_record(self, context: Context, record: Any) -> None:
            super().on_record(context, record)
            seen.extend(context.emitted)

        def on_timer(self, context: Context, name: str) -> None:
            super().on_timer(context, name)
            seen.extend(context.emitted)

    told(Ordered, records)
    what = [name for _, name in seen if not isinstance(name, dict)]
    assert what == ["past", "x", "b", "y", "a", "c", "z"]
    assert [time_ms for time_ms, _ in seen] == [10, 10, 15, 15, 20, 20, 20, 30]


def test_timer_of_the_same_name_is_moved_and_all_fire_at_the_end() -> None:
    found = told(Diary, [("k", 1, {"a": 5}), ("k", 2, {"a": 90}), ("other", 50, "x")])
    assert [pair for pair in found if pair[1] == "a"] == [(90, "a")]


def test_endless_timer_becomes_a_letter() -> None:
    letters: list[Any] = []
    found = told(Diary, [("k", 1, {"for ever": 1}), ("k", 7, "x")], letters)
    assert len(found) == 2 + 6 + MOST_ALONE, "one each ms, and after the last record as often as it may"
    assert [(letter["step"], letter["record"]) for letter in letters] == [("told", ["k", 7 + MOST_ALONE, "for ever"])]
    assert "never end" in letters[0]["error"]


def test_call_that_raises_emits_and_sets_nothing() -> None:
    letters: list[Any] = []

    class States(Diary):
        def on_timer(self, context: Context, name: str) -> None:
            super().on_timer(context, name)
            context.emit((context.time_ms, context.state))

    found = told(States, [("k", 1, {"fail": 3, "good": 4}), ("k", 2, "fail")], letters)
    assert in_time(found)[1:] in (["good", None], [None, "good"])
    assert sorted(letter["failed_on"] for letter in letters) == ["('k', 2, 'fail')", "['k', 3, 'fail']"]
    with pytest.raises(StepFailed, match="step 'told' failed on the record"):
        told(States, [("k", 2, "fail")])


def test_function_handler_uses_reducer_key_equality() -> None:
    def running(context: Context, record: Any) -> None:
        context.state = (context.state or 0) + record[2]
        context.emit((encode(context.key), context.state))

    found = told(running, [(1, 30, 5), (True, 10, 1), (1.0, 20, 2), ("1", 0, 9)])
    assert set(found) == {(encode(1), 1), (encode(1), 3), (encode(1), 8), (encode("1"), 9)}


def test_emitted_records_have_the_time_of_their_emit() -> None:
    builder = Builder("p")
    found = builder.source([("k", 10, {"a": 95}), ("k", 60, "x")], event_time=1, unit="ms").key_by(0).process(Diary)
    found.key_by(lambda pair: "all").window(tumbling(0.05)).count_by_key().sink(collect(), name="out")
    assert [(row.start, row.value) for row in run(builder.build())["out"]] == [(0, 1), (50, 2)]


def test_timer_without_a_handler_is_named() -> None:
    with pytest.raises(StepFailed) as failed:
        told(lambda context, record: context.set_timer(5, "t"), [("k", 1, 0)])
    assert "write a class that also has on_timer" in str(failed.value)
    letters: list[Any] = []
    told(lambda context, record: context.set_timer(0.5), [("k", 1, 0)], letters)
    assert "whole milliseconds" in letters[0]["error"]


def test_state_that_cannot_be_pickled_is_named() -> None:
    pack, _ = kept_of("told")
    with pytest.raises(TypeError, match=r"step 'told': a state cannot be kept.*plain values"):
        pack(KeyMemory(lambda: None))


def yielding(context: Context, record: Any) -> Any:
    yield record


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.process(Visits, name="p"), "step 'p': process needs a key"),
        (lambda s: s.key_by().window(tumbling(1), name="w").process(Visits), "not by the windows of 'w'"),
        (lambda s: s.key_by().process(3, name="p"), "step 'p': 3 is nothing that could process"),
        (lambda s: s.key_by().process(yielding, name="p").log(), "on_record is a generator function; call context"),
        (lambda s: s.key_by().process(Visits, name="p").sink(view("v", "/v")), "a reducer, not 'p'"),
        (lambda s: s.map(str).key_by().process(Visits, name="p").map(str).late(), "no late data"),
    ],
)
def test_invalid_process_is_rejected(make: Any, message: str) -> None:
    builder = Builder("p")

    def written() -> None:
        make(builder.source(range(3), event_time=int, name="s"))
        builder.build()

    with pytest.raises(TopologyError, match=message):
        written()


def test_missing_event_time_is_named() -> None:
    builder = Builder("p")
    builder.source(range(3), name="s").key_by().process(Visits, name="p").log()
    with pytest.raises(TopologyError, match="'s' does not set one; write process"):
        builder.build()
