"""Random streamlet programs over small inputs, for properties that compare the engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from heron_runtime.model.keys import encode
from heronry.streamlet import (
    Builder,
    Context,
    Process,
    collect,
    count,
    distinct,
    max_,
    mean,
    min_,
    monoid,
    sequence,
    session,
    sliding,
    sum_,
    top_k,
    tumbling,
)
from heronry.streamlet.joins import KINDS

KEYS = st.one_of(
    st.sampled_from(["a", "b", "ä", ""]), st.integers(-2, 2), st.sampled_from([1.0, 0.5, None, True]),
    st.tuples(st.sampled_from(["x", "y"]), st.integers(0, 1)),
)  # fmt: skip
RECORDS = st.fixed_dictionaries(
    {
        "k": KEYS,
        "v": st.one_of(st.integers(-5, 5), st.just(1 << 70)),
        "f": st.one_of(st.none(), st.floats(-10, 10)),
        "t": st.integers(-90, 200),
    }
)


class Lookup:
    """Function for ``sequence`` that returns the records of a list."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __call__(self, number: int) -> Any:
        return self.records[number]


def double(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "v": record["v"] * 2}


def is_odd(record: dict[str, Any]) -> bool:
    return bool(record["v"] % 2)


def is_late(record: dict[str, Any]) -> bool:
    return bool(record["t"] > 50)


def copies(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**record, "v": record["v"] + i} for i in range(abs(record["v"]) % 3)]


def priced(found: Any) -> dict[str, Any]:
    return {**found.record, "v": found.record["v"] + (found.row["n"] if found.row else -1)}


@dataclass(frozen=True)
class Typed:
    """Typed form of the output of ``loose``."""

    k: str
    v: int
    f: float | None
    t: int


def loose(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record as JSON or CSV may contain it: text for numbers, an int for a float, extra fields."""
    v, f = record["v"] % 1000, record["f"]
    return {"more": 1, "t": record["t"], "f": repr(f) if f else "", "v": str(v) if v % 2 else v, "k": repr(record["k"])}


def nothing(record: Any) -> None:
    return None


def pair(record: Any) -> tuple[Any, Any]:
    # Which of several equal keys a result contains is unspecified, so nothing may depend on it.
    return (encode(record.key), record.value)


def widest(a: Any, b: Any) -> Any:
    return a | b


def as_set(value: Any) -> frozenset[Any]:
    return frozenset([value])


def ordered(acc: Any) -> tuple[Any, ...]:
    return tuple(sorted(acc))


class Visits(Process):
    """Visits of a key, emitted when they end; with ticks, a timer that is moved and one that is cancelled."""

    def on_record(self, context: Context, record: Any) -> None:
        seen = context.state or []
        context.state = [*seen, record["v"]]
        context.emit((encode(context.key), context.time_ms, len(seen), record["v"]))
        context.set_timer(context.time_ms + 8_000, "end")
        if not seen:
            context.set_timer(context.time_ms, "tick")
        if record["v"] == 0:
            context.cancel_timer("tick")

    def on_timer(self, context: Context, name: str) -> None:
        context.emit((encode(context.key), context.time_ms, name, len(context.state)))
        if name == "end":
            context.state = None
            context.cancel_timer("tick")
        else:
            context.set_timer(context.time_ms + 3_000, "tick")


MONOIDS: list[tuple[Any, Any]] = [
    (count(), None), (sum_(), "v"), (min_(), "v"), (max_(), "f"), (mean(), "v"), (mean(), "f"), (top_k(2), "v"),
    (top_k(2, by="v"), None), (distinct(5), "v"), (distinct(5), "k"), (sum_(), "f"),
    (monoid(frozenset, widest, ordered, as_set, name="union"), "v"),
]  # fmt: skip
WINDOWS = [None, tumbling(30), tumbling(7), sliding(40, 15), sliding(10, 10), session(5), session(30)]
STEPS = ["map", "filter", "flat_map", "tap", "branch", "twice", "lookup", "lookup left", "schema"]
TABLE = [{"key": key, "n": n} for n, key in enumerate(["a", "a", "ä", True, 0.5, None, ("x", 0), "nowhere"])]


@dataclass(frozen=True)
class Reducer:
    """Reduction of a stream; ``again``: its results are reduced once more, those of windows also in other windows."""

    monoid: Any
    value: str | None
    window: Any
    key: str
    event_time: str | None
    again: bool
    parallelism: int | None


@dataclass(frozen=True)
class Join:
    """Join of a stream with another one of the same source."""

    how: str
    window: Any
    keys: tuple[str, str]
    event_time: str | None


@dataclass(frozen=True)
class Story:
    """Processing of a stream in order of event time."""

    key: str
    event_time: str | None
    parallelism: int | None


@dataclass(frozen=True)
class Recipe:
    """Random program: a source of some records, a few steps, reducers and a join, with several ends."""

    records: list[Any]
    steps: list[tuple[str, int | None]]  # kinds, and how many tasks
    whole: bool
    reducers: list[Reducer]
    joins: list[Join]
    stories: list[Story]
    timed: bool  # by the source, otherwise by what needs times
    parallelism: int

    def build(self, end: Callable[[Any], None] = lambda stream: stream.sink(collect()), **config: Any) -> Builder:
        """Return the builder; ``end`` is called with each stream that ends."""
        builder = Builder("random", config)
        source = sequence(len(self.records), Lookup(self.records), rate=200)  # in many blocks
        stream = builder.source(source, event_time="t" if self.timed else None, parallelism=self.parallelism)
        for kind, parallelism in self.steps:
            stream = _step(stream, kind, parallelism)
        if self.whole:
            end(stream)
        for reducer in self.reducers:
            _reduce(stream, self._with_time(reducer), end)
        for join in self.joins:
            _join(stream, self._with_time(join), end)
        for story in self.stories:
            _process(stream, self._with_time(story), end)
        return builder

    def _with_time(self, reads: Any) -> Any:
        return reads if self.timed else replace(reads, event_time="t")


TASKS = st.sampled_from([None, None, 1, 2, 3])
RECIPES = st.builds(
    Recipe,
    st.lists(RECORDS, max_size=40),
    st.lists(st.tuples(st.sampled_from(STEPS), TASKS), max_size=4),
    st.booleans(),
    st.lists(
        st.builds(
            lambda chosen, *rest: Reducer(*chosen, *rest),
            st.sampled_from(MONOIDS), st.sampled_from(WINDOWS), st.sampled_from(["k", "t"]),
            st.sampled_from([None, "t"]), st.booleans(), TASKS,
        ),
        min_size=1, max_size=2,
    ),
    st.lists(
        st.builds(
            Join, st.sampled_from(KINDS), st.sampled_from(WINDOWS[1:]),
            st.tuples(st.sampled_from(["k", "t"]), st.sampled_from(["k", "t"])), st.sampled_from([None, "t"]),
        ),
        max_size=1,
    ),
    st.lists(st.builds(Story, st.sampled_from(["k", "t"]), st.sampled_from([None, "t"]), TASKS), max_size=1),
    st.booleans(),
    st.integers(1, 2),
)  # fmt: skip


#: Records that share keys, windows and sessions across two source tasks, reduced and joined in every kind of window.
DENSE = Recipe(
    records=[{"k": "abä"[n % 3], "v": n % 7 - 3, "f": n / 4, "t": n * 37 % 230 - 60} for n in range(60)],
    steps=[("map", 2), ("lookup left", None)],
    whole=True,
    reducers=[Reducer(sum_(), "v", window, "k", None, again=True, parallelism=2) for window in WINDOWS],
    joins=[Join("outer", window, ("k", "k"), None) for window in (tumbling(30), session(5))],
    stories=[Story("k", None, 2)],
    timed=True,
    parallelism=2,
)


def _process(stream: Any, story: Story, end: Callable[[Any], None]) -> None:
    told = stream.key_by(story.key).process(
        Visits, event_time=story.event_time, allowed_lateness=1000, parallelism=story.parallelism
    )
    end(told)
    end(told.late())
    end(told.key_by(0).window(tumbling(7), allowed_lateness=1000).count_by_key())


def _step(stream: Any, kind: str, parallelism: int | None) -> Any:
    tasks = {"parallelism": parallelism}
    if kind == "map":
        return stream.map(double, **tasks)
    if kind == "filter":
        return stream.filter(is_odd, **tasks)
    if kind == "flat_map":
        return stream.flat_map(copies, **tasks)
    if kind == "tap":
        return stream.tap(nothing, **tasks)
    if kind.startswith("lookup"):
        how = "left" if kind.endswith("left") else "inner"
        return stream.lookup(TABLE, "k", "key", how, **tasks).map(priced)
    if kind == "schema":
        return stream.map(loose).with_schema(Typed, **tasks)
    if kind == "twice":
        return stream.union(stream.map(double), **tasks)
    odd, late, rest = stream.branch(is_odd, is_late, **tasks)
    return odd.map(double).union(late, rest)


def unkeyed(joined: Any) -> Any:
    return (encode(joined.key), *joined[1:])


def _join(stream: Any, join: Join, end: Callable[[Any], None]) -> None:
    sides = [stream.map(double), stream.filter(is_late)]
    left, right = (
        side.key_by(key).window(join.window, event_time=join.event_time, allowed_lateness=1000)
        for side, key in zip(sides, join.keys, strict=True)
    )
    joined = left.join(right, join.how)
    end(joined.map(unkeyed))
    end(joined.late())
    end(left.distinct())


def _reduce(stream: Any, reducer: Reducer, end: Callable[[Any], None]) -> None:
    keyed = stream.key_by(reducer.key)
    if reducer.window is not None:
        keyed = keyed.window(reducer.window, event_time=reducer.event_time, allowed_lateness=1000)
    reduced = keyed.reduce_by_key(
        reducer.monoid, reducer.value, updates=not reducer.again, parallelism=reducer.parallelism
    )
    end(reduced)
    if reducer.window is not None:
        end(reduced.late())  # it is empty
    if reducer.again:
        end(reduced.map(pair).key_by(0).reduce_by_key(count(), parallelism=reducer.parallelism))
        if reducer.window is not None:
            end(reduced.key_by("key").window(sliding(60, 20), allowed_lateness=1000).count_by_key())
