"""Streams of a program: ``Streamlet``, ``KeyedStreamlet`` after ``key_by``, ``WindowedStreamlet`` after ``window``.

Each method adds a step to the draft of the program and returns the resulting stream. The type parameters are those of
the records and keys, so that a type checker finds mistakes in functions: ``map(lambda record: record.nonsense)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, TypeVar, overload

from heron_runtime.model.copies import copied
from heronry.api.errors import TopologyError
from heronry.streamlet.draft import (
    DraftRef,
    GroupingDraft,
    KeyDraft,
    LateOutput,
    ProgramDraft,
    ReducerDraft,
    WindowDraft,
)
from heronry.streamlet.endpoints import FileSource, SequenceSource, Sink
from heronry.streamlet.extract import Field, Selector
from heronry.streamlet.joins import JOIN_MONOID, KINDS, Joined, JoinPairs, SideMarker, apart, least, value_of
from heronry.streamlet.monoid import Monoid, count, monoid_of_function, sum_
from heronry.streamlet.process import LENGTH_MS, Context, handlers_of, moment_monoid, records_of
from heronry.streamlet.program import (
    LATE,
    BranchStep,
    EventTime,
    FilterStep,
    FlatMapStep,
    KeyValue,
    LogStep,
    LookupStep,
    MapStep,
    Matched,
    ReduceStep,
    SchemaStep,
    SinkStep,
    Step,
    TapStep,
    UnionStep,
    Windowed,
    Windowing,
)
from heronry.streamlet.schema import RecordConverter, schema_of
from heronry.streamlet.windows import Duration, Window, whole_ms

T = TypeVar("T")
U = TypeVar("U")
R = TypeVar("R")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
K_co = TypeVar("K_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

JoinKind = Literal["inner", "left", "right", "outer"]


class RecordHandler(Protocol[K, T_contra, U]):
    """Interface of a class given to ``process``; it may also define ``on_timer(context, name)``."""

    def on_record(self, context: Context[K, U], record: T_contra, /) -> None:
        """Process one record."""


def as_source(source: Any) -> Any:
    """Return a list, tuple or range as a source, and any other object unchanged."""
    if isinstance(source, list | tuple | range):
        return SequenceSource(len(source), make=ListedRecords(tuple(source)))
    return source


@dataclass(frozen=True, slots=True)
class ListedRecords:
    """Function from a place to a copy of the record there. Steps may change the copy in place, and read it again."""

    records: tuple[Any, ...]

    def __call__(self, place: int) -> Any:
        """Return a copy of the record at this place."""
        return copied(self.records[place])


class Streamlet(Generic[T_co]):
    """A stream of records in a program. Functions given to its methods are called with one record at a time.

    Args of most methods:
        name: Name of the step. Default: the name of the function, or what the step does; numbered if it is in use.
        parallelism: Number of tasks.
    """

    def __init__(self, draft: ProgramDraft, ref: DraftRef, late: LateOutput | None = None) -> None:
        self._draft = draft
        self._ref = ref
        self._late = late  # of an operator that consists of several steps

    # Record by record.

    def map(
        self, function: Callable[[T_co], U], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[U]:
        """Return the stream of ``function(record)``.

        Examples:
            >>> from heronry.streamlet import Builder
            >>> Builder("lengths").source(["to", "be"]).map(len)
            Streamlet('len')
        """
        return self._add_function(MapStep, function, name, parallelism)

    def flat_map(
        self, function: Callable[[T_co], Iterable[U]], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[U]:
        """Return the stream of all elements of ``function(record)``."""
        return self._add_function(FlatMapStep, function, name, parallelism)

    def filter(
        self, function: Callable[[T_co], object], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[T_co]:
        """Return the stream of the records for which ``function(record)`` is true."""
        return self._add_function(FilterStep, function, name, parallelism)

    def tap(
        self, function: Callable[[T_co], object], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[T_co]:
        """Call ``function(record)`` for its side effect. Return the stream of the same records."""
        return self._add_function(TapStep, function, name, parallelism)

    def with_schema(
        self, schema: Any, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[dict[str, Any]]:
        """Return the stream of records as dicts with exactly the fields and types of a schema.

        A record that does not fit fails; the error names its fields. Conversions lose nothing
        (docs/explanation/streamlet.md).

        Args:
            schema: A dataclass or a ``pyarrow.Schema``.
            name: Name of the step.
            parallelism: Number of tasks.

        Raises:
            TopologyError: The schema has an unsupported type.
        """
        fields = {"function": RecordConverter(schema_of(schema, name or "schema")), "parallelism": parallelism}
        return self._add(SchemaStep, "schema", name, fields)

    def log(self, level: str = "INFO", name: str | None = None, parallelism: int | None = None) -> Streamlet[T_co]:
        """Write each record to the log of the task. Return the stream of the same records."""
        return self._add(LogStep, "log", name, {"level": level, "parallelism": parallelism})

    @overload
    def lookup(
        self,
        table: FileSource[R] | SequenceSource[R] | Sequence[R],
        on: Selector[T_co],
        key: Selector[R] = None,
        how: Literal["inner"] = "inner",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Matched[T_co, R]]: ...
    @overload
    def lookup(
        self,
        table: FileSource[R] | SequenceSource[R] | Sequence[R],
        on: Selector[T_co],
        key: Selector[R] = None,
        *,
        how: Literal["left"],
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Matched[T_co, R | None]]: ...
    def lookup(
        self,
        table: Any,
        on: Any,
        key: Any = None,
        how: str = "inner",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Matched[T_co, Any]]:
        """Join each record with the rows of a small table.

        Args:
            table: ``files(…)`` that do not grow, ``sequence(stop)`` or a list. Each task reads it when it starts.
            on: Field, place or function of the record that must equal the key of a row.
            key: Field, place or function of a row. Default: as ``on``.
            how: "inner", or "left" to keep records without a row, with None.
            name: Name of the step.
            parallelism: Number of tasks.

        Returns:
            A stream of ``Matched(record, row)``, one for each pair.
        """
        where = name or "lookup"
        fields = {
            "table": as_source(table),
            "table_key": self._draft.make_extractor(on if key is None else key, where),
            "on": self._draft.make_extractor(on, where),
            "how": how,
            "parallelism": parallelism,
        }
        return self._add(LookupStep, "lookup", name, fields)

    def branch(
        self, *predicates: Callable[[T_co], object], name: str | None = None, parallelism: int | None = None
    ) -> tuple[Streamlet[T_co], ...]:
        """Split the stream: a record goes to the output of the first predicate that is true, else to the last output.

        Returns:
            One streamlet for each predicate, and one for the remaining records.
        """
        fields = {"predicates": predicates, "parallelism": parallelism}
        number, _ = self._add(BranchStep, "branch", name, fields)._ref
        return tuple(Streamlet(self._draft, (number, output)) for output in range(len(predicates) + 1))

    def union(
        self, *others: Streamlet[U], name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[T_co | U]:
        """Return the stream of the records of this streamlet and of others."""
        for other in others:
            if isinstance(other, KeyedStreamlet | WindowedStreamlet):
                _refuse(other._reducer, "union", name)
            if not isinstance(other, Streamlet) or other._draft is not self._draft:
                raise TopologyError(f"step {name or 'union'!r}: {other!r} is not a streamlet of this program")
        refs = [stream._ref for stream in (self, *others)]
        return Streamlet(
            self._draft, self._draft.add_step(UnionStep, name, "union", refs, {"parallelism": parallelism})
        )

    def sink(self, sink: Sink, name: str | None = None, parallelism: int | None = None) -> Streamlet[T_co]:
        """Write every record to a sink such as ``to_files(…)``, ``archive(…)``, ``view(…)`` or ``collect()``.

        Returns:
            This streamlet.
        """
        self._add(SinkStep, str(getattr(sink, "kind", "sink")), name, {"sink": sink, "parallelism": parallelism})
        return self

    # By key.

    @overload
    def key_by(self, key: None = None, name: str | None = None) -> KeyedStreamlet[T_co, T_co]: ...
    @overload
    def key_by(self, key: str | int, name: str | None = None) -> KeyedStreamlet[Any, T_co]: ...
    @overload
    def key_by(self, key: Callable[[T_co], K], name: str | None = None) -> KeyedStreamlet[K, T_co]: ...
    def key_by(self, key: Any = None, name: str | None = None) -> KeyedStreamlet[Any, T_co]:
        """Set the key of the reducer that follows.

        Args:
            key: Field, place or function of a record. Default: the whole record.
            name: Name of the key in messages.
        """
        return KeyedStreamlet(self._reducer.with_key(key, name))

    def window(
        self,
        window: Window,
        event_time: Selector[T_co] = None,
        allowed_lateness: Duration = 0,
        unit: str = "s",
        name: str | None = None,
    ) -> WindowedStreamlet[Any, T_co]:
        """Set the windows of the reducer that follows.

        Args:
            window: ``tumbling(…)``, ``sliding(…)`` or ``session(…)``.
            event_time: Field, place or function of a record. Default: the event time of the source.
            allowed_lateness: Seconds or timedelta that a window stays open after its end.
            unit: Unit of event times that are numbers: "s" or "ms" since 1970 UTC.
            name: Name of the windows in messages.
        """
        return WindowedStreamlet(self._reducer.with_window(window, event_time, allowed_lateness, unit, name))

    @overload
    def reduce_by_key(
        self,
        monoid: Monoid[Any, R],
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[Any, R]]: ...
    @overload
    def reduce_by_key(
        self,
        monoid: Callable[[Any, Any], R],
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[Any, R]]: ...
    def reduce_by_key(
        self,
        monoid: Any,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[Any, Any]]:
        """Reduce the values of each key to one result.

        Args:
            monoid: A built-in aggregate such as ``sum_()``, ``monoid(…)``, or a function of two values.
            value: Field, place or function of a record that gives the value. Default: the whole record.
            key: Field, place or function of a record; replaces ``key_by``.
            updates: Whether to emit running results online.
            name: Name of the step.
            parallelism: Number of tasks.

        Raises:
            TopologyError: No key, two keys, or an invalid monoid.
        """
        return _reduce(self._reducer, monoid, value, key, updates, name, parallelism)

    def count_by_key(
        self, key: Selector[T_co] = None, updates: bool = True, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[KeyValue[Any, int]]:
        """Count the records of each key. See ``reduce_by_key``."""
        return _count(self._reducer, key, updates, name, parallelism)

    def sum_by_key(
        self,
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[Any, Any]]:
        """Sum the values of each key. See ``reduce_by_key``."""
        return _sum(self._reducer, value, key, updates, name, parallelism)

    def late(self) -> Streamlet[Any]:
        """Return the late data of the windowed reducer, join, distinct or process that this stream comes from.

        Raises:
            TopologyError: The stream comes from another step.
        """
        if self._late is not None:
            rows = Streamlet[Any](self._draft, self._late.ref)
            base = f"{self._draft.step_name(self._late.ref)}-late"
            return rows._add(self._late.step, base, None, {"function": self._late.function, "parallelism": None})
        step = self._draft.step(self._ref)
        if step.cls is not ReduceStep or step.fields["windowing"] is None:
            raise TopologyError(
                f"step {self._draft.step_name(self._ref)!r} has no late data: only a reducer after window() has"
            )
        return Streamlet(self._draft, (self._ref[0], LATE))

    # Helpers.

    @property
    def _reducer(self) -> ReducerDraft:
        return ReducerDraft(self._draft, self._ref)

    def _add_function(
        self, cls: type[Step], function: Any, name: str | None, parallelism: int | None
    ) -> Streamlet[Any]:
        own = getattr(function, "__name__", "")
        base = own if re.fullmatch(r"[A-Za-z]\w*", own) else cls.kind
        return self._add(cls, base, name, {"function": function, "parallelism": parallelism})

    def _add(self, cls: type[Step], base: str, name: str | None, fields: dict[str, Any]) -> Streamlet[Any]:
        return Streamlet(self._draft, self._draft.add_step(cls, name, base, [self._ref], fields))

    def _add_part(self, cls: type[Step], name: str | None, part: str, function: Any, whole: str) -> Streamlet[Any]:
        """Add a step that is part of an operator, such as a join."""
        fields = {"parallelism": None, "function": function}
        return self._add(cls, f"{whole}-{part}", name and f"{name}-{part}", fields)

    def __repr__(self) -> str:
        return f"Streamlet({self._draft.step_name(self._ref)!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Callable[..., NoReturn]:
            hint = _NEEDS.get(method)
            if hint is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {method!r}")
            return _refusal(f"{method} {hint}", method)


class KeyedStreamlet(Generic[K_co, T_co]):
    """A stream with a key, for the reducer that follows."""

    def __init__(self, reducer: ReducerDraft) -> None:
        self._reducer = reducer

    def window(
        self,
        window: Window,
        event_time: Selector[T_co] = None,
        allowed_lateness: Duration = 0,
        unit: str = "s",
        name: str | None = None,
    ) -> WindowedStreamlet[K_co, T_co]:
        """Set the windows of the reducer that follows. See ``Streamlet.window``."""
        return WindowedStreamlet(self._reducer.with_window(window, event_time, allowed_lateness, unit, name))

    @overload
    def reduce_by_key(
        self,
        monoid: Monoid[Any, R],
        value: Selector[T_co] = None,
        key: None = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[K_co, R]]: ...
    @overload
    def reduce_by_key(
        self,
        monoid: Callable[[Any, Any], R],
        value: Selector[T_co] = None,
        key: None = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[K_co, R]]: ...
    def reduce_by_key(
        self,
        monoid: Any,
        value: Any = None,
        key: None = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[K_co, Any]]:
        """Reduce the values of each key to one result. See ``Streamlet.reduce_by_key``."""
        return _reduce(self._reducer, monoid, value, key, updates, name, parallelism)

    def count_by_key(
        self, key: None = None, updates: bool = True, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[KeyValue[K_co, int]]:
        """Count the records of each key. See ``Streamlet.reduce_by_key``."""
        return _count(self._reducer, key, updates, name, parallelism)

    def sum_by_key(
        self,
        value: Selector[T_co] = None,
        key: None = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[KeyValue[K_co, Any]]:
        """Sum the values of each key. See ``Streamlet.reduce_by_key``."""
        return _sum(self._reducer, value, key, updates, name, parallelism)

    @overload
    def process(
        self,
        handlers: Callable[[Context[K_co, U], T_co], None],
        event_time: Selector[T_co] = None,
        allowed_lateness: Duration = 0,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[U]: ...
    @overload
    def process(
        self,
        handlers: Callable[[], RecordHandler[K_co, T_co, U]] | RecordHandler[K_co, T_co, U],
        event_time: Selector[T_co] = None,
        allowed_lateness: Duration = 0,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[U]: ...
    def process(
        self,
        handlers: Any,
        event_time: Any = None,
        allowed_lateness: Duration = 0,
        unit: str = "s",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Any]:
        """Call functions with a state and timers for each key, in the order of event time.

        Args:
            handlers: A function of (context, record), or a class with ``on_record(context, record)`` and, for timers,
                ``on_timer(context, name)``. See ``Process`` and ``Context``.
            event_time: Field, place or function of a record. Default: the event time of the source.
            allowed_lateness: Seconds or timedelta. A record is processed when the watermark has passed its time by it.
            unit: Unit of event times that are numbers: "s" or "ms" since 1970 UTC.
            name: Name of the step.
            parallelism: Number of tasks.

        Returns:
            The stream of emitted records.

        Raises:
            TopologyError: Invalid handlers.
        """
        where, draft = name or "process", self._reducer.draft
        try:
            made = handlers_of(handlers)
        except TypeError as error:
            raise TopologyError(f"step {where!r}: {error}") from error
        time = draft.make_event_time(event_time, unit, where)
        lateness_ms = whole_ms(allowed_lateness, f"step {where!r}: allowed_lateness")
        windowing = Windowing(Window(LENGTH_MS, LENGTH_MS), time, lateness_ms)
        moments = replace(self._reducer, window=WindowDraft(windowing, GroupingDraft("process", where)))
        ref = moments.reduce("process", moment_monoid(made.name), name=name, parallelism=parallelism, process=made)
        return Streamlet(draft, ref, LateOutput((ref[0], LATE), FlatMapStep, records_of))

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Callable[..., Any]:
            if method == "key_by":
                return lambda key=None, name=None: self._reducer.with_key(key, name)
            if method in ("join", "distinct"):
                return _refusal(f"{method} {_NEEDS[method]}", method)
            return _misplaced(self, method)


class WindowedStreamlet(Generic[K_co, T_co]):
    """A stream with windows, and perhaps a key, for the reducer that follows."""

    def __init__(self, reducer: ReducerDraft) -> None:
        self._reducer = reducer

    @overload
    def key_by(self, key: None = None, name: str | None = None) -> WindowedStreamlet[T_co, T_co]: ...
    @overload
    def key_by(self, key: str | int, name: str | None = None) -> WindowedStreamlet[Any, T_co]: ...
    @overload
    def key_by(self, key: Callable[[T_co], K], name: str | None = None) -> WindowedStreamlet[K, T_co]: ...
    def key_by(self, key: Any = None, name: str | None = None) -> WindowedStreamlet[Any, T_co]:
        """Set the key of the reducer that follows. See ``Streamlet.key_by``."""
        return WindowedStreamlet(self._reducer.with_key(key, name))

    @overload
    def reduce_by_key(
        self,
        monoid: Monoid[Any, R],
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Windowed[K_co, R]]: ...
    @overload
    def reduce_by_key(
        self,
        monoid: Callable[[Any, Any], R],
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Windowed[K_co, R]]: ...
    def reduce_by_key(
        self,
        monoid: Any,
        value: Any = None,
        key: Any = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Windowed[K_co, Any]]:
        """Reduce the values of each key and window to one result. See ``Streamlet.reduce_by_key``."""
        return _reduce(self._reducer, monoid, value, key, updates, name, parallelism)

    def count_by_key(
        self, key: Selector[T_co] = None, updates: bool = True, name: str | None = None, parallelism: int | None = None
    ) -> Streamlet[Windowed[K_co, int]]:
        """Count the records of each key and window. See ``Streamlet.reduce_by_key``."""
        return _count(self._reducer, key, updates, name, parallelism)

    def sum_by_key(
        self,
        value: Selector[T_co] = None,
        key: Selector[T_co] = None,
        updates: bool = True,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Windowed[K_co, Any]]:
        """Sum the values of each key and window. See ``Streamlet.reduce_by_key``."""
        return _sum(self._reducer, value, key, updates, name, parallelism)

    def distinct(self, name: str | None = None, parallelism: int | None = None) -> Streamlet[T_co]:
        """Return one record for each key and window: the least by canonical encoding, whatever their order.

        ``session(gap)`` drops repetitions within the gap. Needs ``key_by``.
        """
        draft = self._reducer.draft
        ref = self._reducer.reduce("distinct", monoid_of_function(least), name=name, parallelism=parallelism)
        records = Streamlet[Any](draft, ref)._add_part(MapStep, name, "record", value_of, "distinct")
        return Streamlet(draft, records._ref, LateOutput((ref[0], LATE), MapStep, value_of))

    @overload
    def join(
        self,
        other: KeyedStreamlet[Any, U] | WindowedStreamlet[Any, U],
        how: Literal["inner"] = "inner",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Joined[K_co, T_co, U]]: ...
    @overload
    def join(
        self,
        other: KeyedStreamlet[Any, U] | WindowedStreamlet[Any, U],
        how: Literal["left"],
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Joined[K_co, T_co, U | None]]: ...
    @overload
    def join(
        self,
        other: KeyedStreamlet[Any, U] | WindowedStreamlet[Any, U],
        how: Literal["right"],
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Joined[K_co, T_co | None, U]]: ...
    @overload
    def join(
        self,
        other: KeyedStreamlet[Any, U] | WindowedStreamlet[Any, U],
        how: JoinKind,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Joined[K_co, T_co | None, U | None]]: ...
    def join(
        self,
        other: KeyedStreamlet[Any, U] | WindowedStreamlet[Any, U],
        how: str = "inner",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Streamlet[Any]:
        """Join records of equal key within a window.

        Args:
            other: A stream after ``key_by``, and after the same ``window`` if it has an event time of its own.
            how: "inner", or "left", "right" or "outer" to keep records without a counterpart, with None.
            name: Name of the join; its steps add ``-left``, ``-right``, ``-both`` and ``-pairs``.
            parallelism: Number of tasks.

        Returns:
            A stream of ``Joined``, one for each pair. A pair that is in several windows comes once for each.

        Raises:
            TopologyError: A key is missing, the windows differ, or the streams are of different programs.
        """
        where, draft, mine = name or "join", self._reducer.draft, self._reducer
        if how not in KINDS:
            raise TopologyError(f"step {where!r}: how is {how!r}; write one of {', '.join(KINDS)}")
        theirs = getattr(other, "_reducer", None)
        if theirs is None or theirs.draft is not draft:
            raise TopologyError(f"step {where!r}: {other!r} is not a streamlet of this program")
        if mine.key is None or theirs.key is None or mine.window is None:
            raise TopologyError(f"step {where!r}: a join {_NEEDS['join']}")
        times = _times_of_sides(mine.window, theirs.window, where)
        sides = []
        for number, (part, side, time) in enumerate(zip(("left", "right"), (mine, theirs), times, strict=True)):
            side.mark_used(side.key)
            marker = SideMarker(number, side.key.extractor, time)
            sides.append(Streamlet[Any](draft, side.ref)._add_part(MapStep, name, part, marker, "join")._ref)
        both = draft.add_step(UnionStep, name and f"{name}-both", "join-both", sides, {"parallelism": parallelism})
        key = KeyDraft(Field("key"), mine.key.grouping)
        event_time = EventTime(Field("time_ms"), "ms") if times[0] else None
        window = WindowDraft(replace(mine.window.windowing, event_time=event_time), mine.window.grouping)
        lists = ReducerDraft(draft, both, key, window).reduce("join", JOIN_MONOID, name=name, parallelism=parallelism)
        pairs = Streamlet[Any](draft, lists)._add_part(FlatMapStep, name, "pairs", JoinPairs(how), "join")
        return Streamlet(draft, pairs._ref, LateOutput((lists[0], LATE), FlatMapStep, apart))

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Callable[..., Any]:
            if method == "window":
                return lambda window, name=None, **more: self._reducer.with_window(window, None, 0, "s", name)
            if method == "process":
                return _refusal(
                    "process works record by record, not by the windows of "
                    f"{self._reducer.window.grouping.name!r}; remove window(…) and give its arguments to process: "
                    "process(…, event_time=…, allowed_lateness=…)",
                    method,
                )
            return _misplaced(self, method)


_NEEDS = {
    "join": "needs key_by(…) on both sides and a window: a.key_by(…).window(…).join(b.key_by(…))",
    "distinct": "needs a window, since it cannot remember every key indefinitely: "
    "key_by(…).window(tumbling(3600)).distinct()",
    "process": "needs a key: key_by(…).process(…)",
}


def _reduce(
    reducer: ReducerDraft, monoid: Any, value: Any, key: Any, updates: bool, name: str | None, parallelism: int | None
) -> Streamlet[Any]:
    if not isinstance(monoid, Monoid):
        if not callable(monoid):
            raise TopologyError(
                f"step {name or 'reduce_by_key'!r}: {monoid!r} is not a monoid; write one of count() sum_() min_() "
                "max_() mean() top_k() distinct(), monoid(zero, add), or a function of two values"
            )
        monoid = monoid_of_function(monoid)
    ref = reducer.reduce("reduce_by_key", monoid, value, key, updates, name, parallelism)
    return Streamlet(reducer.draft, ref)


def _count(reducer: ReducerDraft, key: Any, updates: bool, name: str | None, parallelism: int | None) -> Streamlet[Any]:
    ref = reducer.reduce("count_by_key", count(), None, key, updates, name, parallelism)
    return Streamlet(reducer.draft, ref)


def _sum(
    reducer: ReducerDraft, value: Any, key: Any, updates: bool, name: str | None, parallelism: int | None
) -> Streamlet[Any]:
    ref = reducer.reduce("sum_by_key", sum_(), value, key, updates, name, parallelism)
    return Streamlet(reducer.draft, ref)


def _times_of_sides(
    mine: WindowDraft, theirs: WindowDraft | None, where: str
) -> tuple[EventTime | None, EventTime | None]:
    """Return the event times of a join's sides where a side has its own. Raises TopologyError."""
    left_windowing = mine.windowing
    right = theirs.windowing if theirs is not None else replace(left_windowing, event_time=None)
    if (right.window, right.allowed_lateness_ms) not in (
        (left_windowing.window, left_windowing.allowed_lateness_ms),
        (left_windowing.window, 0),
    ):
        raise TopologyError(f"step {where!r}: its sides have different windows; use the same for both")
    if (left_windowing.event_time is None) != (right.event_time is None):
        raise TopologyError(
            f"step {where!r}: one side has event_time= in its window, the other uses the time of its source; give it "
            "in window(…) of both sides, or of neither"
        )
    return left_windowing.event_time, right.event_time


def _misplaced(stream: KeyedStreamlet[Any, Any] | WindowedStreamlet[Any, Any], method: str) -> Callable[..., NoReturn]:
    """Return a function that refuses a method of ``Streamlet`` after ``key_by`` or ``window``."""
    if method.startswith("_") or not hasattr(Streamlet, method):
        raise AttributeError(f"{type(stream).__name__!r} object has no attribute {method!r}")
    reducer = stream._reducer
    return lambda *arguments, name=None, **more: _refuse(reducer, method, name)


def _refuse(reducer: ReducerDraft, method: str, name: str | None) -> NoReturn:
    part = reducer.key or reducer.window
    assert part is not None
    raise TopologyError(
        f"step {name or method!r}: {method} cannot follow {part.grouping.kind} {part.grouping.name!r}, which needs a "
        "reducer; move it before, or add count_by_key(), sum_by_key() or reduce_by_key()"
    )


def _refusal(problem: str, method: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: Any, name: str | None = None, **more: Any) -> NoReturn:
        raise TopologyError(f"step {name or method!r}: {problem}")

    return refuse
