"""``Streamlet``: what the user writes behind a source. Each method notes a step with the builder and gives the stream
that comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from heronry.api.errors import TopologyError
from heronry.streamlet.conform import Conform
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.extract import Extractor, Field
from heronry.streamlet.joins import BOTH_SIDES, KINDS, Pairs, Side, apart, least, value_of
from heronry.streamlet.monoid import Monoid, count, semigroup, sum_
from heronry.streamlet.process import LENGTH_MS, Handlers, gathered, handlers_of, records_of
from heronry.streamlet.program import (
    LATE,
    BranchStep,
    EventTime,
    FilterStep,
    FlatMapStep,
    LogStep,
    LookupStep,
    MapStep,
    ReduceStep,
    SchemaStep,
    SinkStep,
    Step,
    TapStep,
    UnionStep,
    Windowing,
)
from heronry.streamlet.schema import schema_of
from heronry.streamlet.windows import Window, whole_ms

if TYPE_CHECKING:
    from heronry.streamlet.builder import Builder

OutputRef = tuple[int, int]  # (number of a draft, its output)


@dataclass
class Pending:
    """A key_by or window that no reducer has taken up yet."""

    kind: str
    name: str
    used: bool = False


def listed(source: Any) -> Any:
    """A list, for tests and small tables, as the source it is; anything else as it is."""
    if isinstance(source, list | tuple | range):
        return SequenceSource(len(source), make=tuple(source).__getitem__)
    return source


class Streamlet:
    """A stream of records in a program to be. Every method that takes a function calls it with one record."""

    def __init__(
        self,
        builder: Builder,
        place: OutputRef,
        key: tuple[Extractor, Pending] | None = None,
        window: tuple[Windowing, Pending] | None = None,
        late: tuple[OutputRef, type[Step], Callable[[Any], Any]] | None = None,
    ) -> None:
        self._builder = builder
        self._place = place
        self._key = key
        self._window = window
        self._late = late  # of what is made of several steps: where late data is, and what makes records of it

    # Record by record.

    def map(self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """``function(record)``."""
        return self._function_step(MapStep, function, name, parallelism)

    def flat_map(
        self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """Every element of ``function(record)``."""
        return self._function_step(FlatMapStep, function, name, parallelism)

    def filter(
        self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """The records for which ``function(record)`` is true."""
        return self._function_step(FilterStep, function, name, parallelism)

    def tap(self, function: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The same records; ``function(record)`` is called for what it does."""
        return self._function_step(TapStep, function, name, parallelism)

    def with_schema(self, schema: Any, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """Records as dicts of exactly these fields and types; one that does not fit fails, its fields named.

        ``schema``: a dataclass, or a ``pyarrow.Schema``. Nothing is lost on the way: docs/explanation/streamlet.md has
        the rule. Raises TopologyError for a type that is not carried.
        """
        fields = {"function": Conform(schema_of(schema, name or "schema")), "parallelism": parallelism}
        return self._then(SchemaStep, "schema", name, fields)

    def log(self, level: str = "INFO", name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The same records; each is written to the task's log."""
        return self._then(LogStep, "log", name, {"level": level, "parallelism": parallelism})

    def lookup(
        self, table: Any, on: Any, key: Any = None, how: str = "inner", name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:  # fmt: skip
        """``Matched(record, row)`` for each row of a small table whose ``key`` equals the record's ``on``.

        ``table``: ``files(…)`` that do not grow, ``sequence(stop)`` or a list; read whole wherever the step runs, when
        it begins. ``key`` defaults to ``on``. ``how``: "inner"; "left": also records without a row, with None.
        """
        where = name or "lookup"
        on, key = (self._builder._extractor(given, where) for given in (on, on if key is None else key))
        fields = {"table": listed(table), "table_key": key, "on": on, "how": how, "parallelism": parallelism}
        return self._then(LookupStep, "lookup", name, fields)

    def branch(
        self, *predicates: Callable[[Any], Any], name: str | None = None, parallelism: int | None = None
    ) -> tuple[Streamlet, ...]:
        """One streamlet for each predicate and one more: a record goes to the first that is true, else to the last."""
        fields = {"predicates": predicates, "parallelism": parallelism}
        number, _ = self._then(BranchStep, "branch", name, fields)._place
        return tuple(Streamlet(self._builder, (number, output)) for output in range(len(predicates) + 1))

    def union(self, *others: Streamlet, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """The records of this streamlet and of the others."""
        for stream in (self, *others):
            if not isinstance(stream, Streamlet) or stream._builder is not self._builder:
                raise TopologyError(f"step {name or 'union'!r}: {stream!r} is no streamlet of this program")
            stream._refuse_pending("union", name)
        places = [stream._place for stream in (self, *others)]
        return self._builder._add(UnionStep, name, "union", places, {"parallelism": parallelism})

    def sink(self, sink: Any, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """Give every record to ``to_files(…)``, ``archive(…)``, ``view(…)`` or ``collect()``; returns ``self``."""
        self._then(SinkStep, str(getattr(sink, "kind", "sink")), name, {"sink": sink, "parallelism": parallelism})
        return self

    # By key.

    def key_by(self, key: Any = None, name: str | None = None) -> Streamlet:
        """The reducer that follows works by this key: a field, a place, a function; nothing: the whole record."""
        if self._key is not None:
            raise TopologyError(
                f"step {name or 'key_by'!r}: {self._key[1].name!r} has set the key already; keep one of the two"
            )
        pending = self._builder._hold("key_by", name)
        extractor = self._builder._extractor(key, pending.name)
        return Streamlet(self._builder, self._place, (extractor, pending), self._window)

    def window(
        self,
        window: Window,
        event_time: Any = None,
        allowed_lateness: Any = 0,
        unit: str = "s",
        name: str | None = None,
    ) -> Streamlet:
        """The reducer that follows works by windows of event time: ``tumbling(…)``, ``sliding(…)`` or ``session(…)``.

        ``event_time``: a field, place or function of the record as it is here; nothing: the source's.
        ``allowed_lateness``, in seconds: how much longer than its end a window stays open.
        """
        if self._window is not None:
            raise TopologyError(
                f"step {name or 'window'!r}: {self._window[1].name!r} has set the window already; keep one of the two"
            )
        pending = self._builder._hold("window", name)
        if not isinstance(window, Window):
            raise TopologyError(
                f"step {pending.name!r}: {window!r} is no window; write tumbling(60), sliding(60, 10) or session(30)"
            )
        time = self._builder._time(event_time, unit, pending.name)
        lateness_ms = whole_ms(allowed_lateness, f"step {pending.name!r}: allowed_lateness")
        return Streamlet(self._builder, self._place, self._key, (Windowing(window, time, lateness_ms), pending))

    def reduce_by_key(
        self,
        monoid: Any,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """One result for each key (and window). ``monoid``: one of ``monoids``, your own, or a function of two values.

        ``value``: what of the record is reduced (nothing: the whole record). ``key`` saves a ``key_by``. Without a
        window and with ``updates`` running results are emitted too. Raises TopologyError.
        """
        if not isinstance(monoid, Monoid):
            if not callable(monoid):
                raise TopologyError(
                    f"step {name or 'reduce_by_key'!r}: {monoid!r} is no monoid; write one of count() sum_() min_() "
                    "max_() mean() top_k() distinct(), monoid(zero, add), or a function of two values"
                )
            monoid = semigroup(monoid)
        return self._reduce("reduce_by_key", monoid, value, key, updates, name, parallelism)

    def count_by_key(
        self, key: Any = None, updates: bool = True, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """How many records each key has."""
        return self._reduce("count_by_key", count(), None, key, updates, name, parallelism)

    def sum_by_key(
        self,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """The sum of ``value`` for each key."""
        return self._reduce("sum_by_key", sum_(), value, key, updates, name, parallelism)

    def distinct(self, name: str | None = None, parallelism: int | None = None) -> Streamlet:
        """One record for each key and window: of several the least by canonical encoding, whatever their order. Stands
        behind ``key_by`` and ``window``; ``session(gap)`` drops what comes again within the gap. Raises TopologyError.
        """
        where = name or "distinct"
        if self._window is None:
            raise TopologyError(
                f"step {where!r}: distinct needs a window, for it cannot remember every key for ever: "
                "key_by(…).window(tumbling(3600)).distinct()"
            )
        kept = self._reduce("distinct", semigroup(least), None, None, True, name, parallelism)
        records = kept._part(MapStep, name, "record", {"function": value_of}, "distinct")
        return Streamlet(self._builder, records._place, late=((kept._place[0], LATE), MapStep, value_of))

    def join(
        self, other: Streamlet, how: str = "inner", name: str | None = None, parallelism: int | None = None
    ) -> Streamlet:
        """Pairs of records of equal key in one window, ``Joined``: ``self`` behind ``key_by`` and ``window``, ``other``
        behind ``key_by``, and behind the same ``window`` if its event time is its own.

        ``how``: "inner"; "left", "right", "outer": also records without a counterpart, with None. A pair that is in
        several windows comes once for each. Raises TopologyError.
        """
        where = name or "join"
        if how not in KINDS:
            raise TopologyError(f"step {where!r}: how is {how!r}; write one of {', '.join(KINDS)}")
        if not isinstance(other, Streamlet) or other._builder is not self._builder:
            raise TopologyError(f"step {where!r}: {other!r} is no streamlet of this program")
        if self._key is None or other._key is None or self._window is None:
            raise TopologyError(
                f"step {where!r}: a join needs key_by(…) on both sides and a window: "
                "a.key_by(…).window(…).join(b.key_by(…))"
            )
        windowing, times = self._window[0], self._times_of_sides(other, where)
        sides = []
        for number, (stream, time) in enumerate(zip((self, other), times, strict=True)):
            assert stream._key is not None
            stream._key[1].used = True
            if stream._window is not None:
                stream._window[1].used = True
            side = Side(number, stream._key[0], time)
            part = ("left", "right")[number]
            sides.append(Streamlet(self._builder, stream._place)._part(MapStep, name, part, {"function": side}))
        both = self._builder._add(
            UnionStep, name and f"{name}-both", "join-both", [side._place for side in sides],
            {"parallelism": parallelism},
        )  # fmt: skip
        both._key = (Field("key"), self._key[1])
        time = EventTime(Field("time_ms"), "ms") if times[0] else None
        both._window = (replace(windowing, event_time=time), self._window[1])
        lists = both._reduce("join", BOTH_SIDES, None, None, True, name, parallelism)
        pairs = lists._part(FlatMapStep, name, "pairs", {"function": Pairs(how)})
        return Streamlet(self._builder, pairs._place, late=((lists._place[0], LATE), FlatMapStep, apart))

    def process(
        self,
        handlers: Any,
        event_time: Any = None,
        allowed_lateness: Any = 0,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet:
        """What ``handlers`` emit, with a state and timers for each key, told records in order of event time. Stands
        behind ``key_by``.

        ``handlers``: a function of (context, record), or a class with ``on_record(context, record)`` and
        ``on_timer(context, name)`` (``Process``, ``Context``). ``event_time``, ``allowed_lateness`` and ``unit`` as in
        ``window``: a record is handed over when the watermark has passed its time by the lateness. Raises
        TopologyError.
        """
        where = name or "process"
        if self._window is not None:
            raise TopologyError(
                f"step {where!r}: process works record by record, not by the windows of {self._window[1].name!r}; take "
                "window(…) away: process(…, event_time=…, allowed_lateness=…) has what it needs of it"
            )
        try:
            made = handlers_of(handlers)
        except TypeError as error:
            raise TopologyError(f"step {where!r}: {error}") from error
        pending = Pending("process", where)
        time = self._builder._time(event_time, unit, where)
        lateness_ms = whole_ms(allowed_lateness, f"step {where!r}: allowed_lateness")
        windowing = Windowing(Window(LENGTH_MS, LENGTH_MS), time, lateness_ms)
        moments = Streamlet(self._builder, self._place, self._key, (windowing, pending))
        found = moments._reduce("process", gathered(made.name), None, None, True, name, parallelism, process=made)
        return Streamlet(self._builder, found._place, late=((found._place[0], LATE), FlatMapStep, records_of))

    def late(self) -> Streamlet:
        """What came too late for this windowed reducer, join, distinct or process. Raises TopologyError behind anything
        else."""
        if self._late is not None:
            place, cls, function = self._late
            rows = Streamlet(self._builder, place)
            base = f"{self._builder._step_name(place)}-late"
            return rows._then(cls, base, None, {"function": function, "parallelism": None})
        draft = self._builder._drafts[self._place[0]]
        if draft.cls is not ReduceStep or draft.fields["windowing"] is None:
            raise TopologyError(
                f"step {self._builder._step_name(self._place)!r} has no late data: only a reducer behind window() has"
            )
        return Streamlet(self._builder, (self._place[0], LATE))

    # Helpers.

    def _reduce(
        self, base: str, monoid: Monoid, value: Any, key: Any, updates: bool, name: str | None, parallelism: int | None,
        process: Handlers | None = None,
    ) -> Streamlet:  # fmt: skip
        where = name or base
        chosen = self._key
        if key is not None:
            if chosen is not None:
                raise TopologyError(f"step {where!r}: key= and key_by({chosen[1].name!r}) both set the key; keep one")
            chosen = (self._builder._extractor(key, where), Pending("key_by", where))
        if chosen is None:
            raise TopologyError(
                f"step {where!r} (behind {self._builder._step_name(self._place)!r}): no key; put key_by(…) before it, "
                "or give it key=…"
            )
        chosen[1].used = True
        if self._window is not None:
            self._window[1].used = True
        fields = {
            "key": chosen[0], "value": self._builder._extractor(value, where), "monoid": monoid,
            "windowing": self._window[0] if self._window else None, "updates": bool(updates),
            "parallelism": parallelism, "key_step": chosen[1].name,
            "window_step": self._window[1].name if self._window else "", "process": process,
        }  # fmt: skip
        return self._builder._add(ReduceStep, name, base, [self._place], fields)

    def _times_of_sides(self, other: Streamlet, where: str) -> tuple[EventTime | None, EventTime | None]:
        """The event times of a join's sides, if they are their own. Raises TopologyError."""
        assert self._window is not None
        mine = self._window[0]
        theirs = other._window[0] if other._window is not None else replace(mine, event_time=None)
        if (theirs.window, theirs.allowed_lateness_ms) not in (
            (mine.window, mine.allowed_lateness_ms),
            (mine.window, 0),
        ):
            raise TopologyError(f"step {where!r}: its sides have different windows; give both the same, or one none")
        if (mine.event_time is None) != (theirs.event_time is None):
            raise TopologyError(
                f"step {where!r}: one side has event_time= in its window, the other takes its source's time; write it "
                "for both, in window(…) of each side, or for none"
            )
        return mine.event_time, theirs.event_time

    def _part(
        self, cls: type[Step], name: str | None, part: str, fields: dict[str, Any], whole: str = "join"
    ) -> Streamlet:
        """A step that is a part of a join, or of another whole."""
        return self._then(cls, f"{whole}-{part}", name and f"{name}-{part}", {"parallelism": None, **fields})

    def _function_step(self, cls: type[Step], function: Any, name: str | None, parallelism: int | None) -> Streamlet:
        own = getattr(function, "__name__", "")
        base = own if re.fullmatch(r"[A-Za-z]\w*", own) else cls.kind
        return self._then(cls, base, name, {"function": function, "parallelism": parallelism})

    def _then(self, cls: type[Step], base: str, name: str | None, fields: dict[str, Any]) -> Streamlet:
        self._refuse_pending(cls.kind, name)
        return self._builder._add(cls, name, base, [self._place], fields)

    def _refuse_pending(self, kind: str, name: str | None) -> None:
        pending = self._key or self._window
        if pending is not None:
            raise TopologyError(
                f"step {name or kind!r}: {kind} stands behind {pending[1].kind} {pending[1].name!r}, which only a "
                "reducer may follow; move it before, or add count_by_key(), sum_by_key() or reduce_by_key()"
            )

    def __repr__(self) -> str:
        return f"Streamlet({self._builder._step_name(self._place)!r})"
