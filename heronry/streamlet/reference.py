"""Reference evaluator in plain Python, which defines the semantics of a program as simply as possible.

Engines are compared with it, and users test their programs with it::

    result = run(words.build())                       # reads the declared sources; writes nothing
    result = run(words.build(), {"source": ["a b"]})  # or takes records by the name of the source step
    assert result["sink"] == [KeyValue("a", 1), KeyValue("b", 1)]

A record that fails raises. With ``run(program, failed=letters)`` it is left out, and reported in that list in the form
in which the engines put it aside (aside.py). Each record of a source, and each result of a reducer, is tried separately
first.

Inputs must be finite. No record is late. Results are sorted by their canonical encodings, so that two runs can be
compared; the order itself has no meaning.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple

from heron_runtime.model.copies import copied
from heron_runtime.model.keys import UnsupportedKey, encode
from heronry.api.errors import TopologyError
from heronry.streamlet.aside import MAX_FAILED_ON_CHARACTERS, failure_line
from heronry.streamlet.compare import canonical
from heronry.streamlet.decoding import read_all, read_singly
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.errors import StepFailed, shown
from heronry.streamlet.instants import key_by_instant
from heronry.streamlet.lookup import LookupTable, without_lookups
from heronry.streamlet.process import MOST_ALONE, Context, refuse_endless_timers
from heronry.streamlet.program import (
    LATE,
    BranchStep,
    EventTime,
    FilterStep,
    FlatMapStep,
    KeyValue,
    LogStep,
    MapStep,
    Program,
    ReduceStep,
    Ref,
    SinkStep,
    SourceStep,
    Step,
    TapStep,
    UnionStep,
    Windowed,
    split_into_segments,
)
from heronry.streamlet.servers import ServerSource, pieces_of, ranges_of
from heronry.streamlet.windows import EventTimeError, to_ms

log = logging.getLogger(__name__)
READER = "heronry reference"  # the client name that servers see


class TimedRecord(NamedTuple):
    """Record and its event time (ms since 1970 UTC), if it has one."""

    record: Any
    time_ms: int | None


def run(
    program: Program, inputs: Mapping[str, Iterable[Any]] | None = None, failed: list[dict[str, Any]] | None = None
) -> dict[str, list[Any]]:
    """Return the records that each sink gets, by the name of its step.

    Args:
        program: The program.
        inputs: Records that replace those of a source, by the name of its step.
        failed: List to which failing records are appended, instead of raising their errors.

    Raises:
        StepFailed: A function failed on a record. With ``failed``, only if the error is not caused by a record alone.
        TopologyError: An input is unbounded, or ``inputs`` names an unknown source.
        ReadError: An input cannot be read.
    """
    streams = evaluate(program, inputs, failed)
    return {
        step.name: sorted((timed.record for timed in streams[step.input]), key=canonical) for step in program.sinks()
    }


def evaluate(
    program: Program, inputs: Mapping[str, Iterable[Any]] | None = None, failed: list[dict[str, Any]] | None = None
) -> dict[Ref, list[TimedRecord]]:
    """Return every stream of the program. For the arguments see ``run``.

    Raises:
        StepFailed: A function failed on a record.
        TopologyError: An input is unbounded, or ``inputs`` names an unknown source.
    """
    program, given = _with_tables(program), dict(inputs or {})
    streams: dict[Ref, list[TimedRecord]] = {}
    trial = None if failed is None else FailureTrial(program, failed)
    for step in program.steps:
        if isinstance(step, SourceStep):
            own = given.pop(step.name, None)
            streams[Ref(step.name)] = list(_source(step, own) if trial is None else trial.source(step, own))
        else:
            records = [_copied(timed) for ref in step.inputs for timed in streams[ref]]
            _apply(step, records, streams, None if trial is None else trial.put)
            if trial is not None and isinstance(step, ReduceStep):
                streams[Ref(step.name)] = [r for r in streams[Ref(step.name)] if trial.passes(step.name, r, "")]
    if given:
        raise TopologyError(f"unknown source step {', '.join(map(repr, given))}")
    return streams


def _with_tables(program: Program) -> Program:
    """Return the program with its lookup tables read. Errors of reading are raised unchanged."""
    program_without_lookups = without_lookups(program)
    for step in program_without_lookups.steps:
        if isinstance(step, FlatMapStep) and isinstance(step.function, LookupTable):
            step.function.load()
    return program_without_lookups


class FailureTrial:
    """Trial of each record separately, through the steps up to the next reducers.

    Failures are appended to ``failed``.
    """

    def __init__(self, program: Program, failed: list[dict[str, Any]]) -> None:
        self._program, self._failed = program, failed
        self._segments = split_into_segments(program)

    def source(self, step: SourceStep, given: Iterable[Any] | None) -> Iterator[TimedRecord]:
        """Yield the records of a source that pass."""
        rows: Iterable[tuple[Any, int | None, str]]
        if given is None and isinstance(step.source, FileSource):
            rows = read_singly(step.source, lambda where, text, error: self.put(step.name, where, text, text, error))
        elif given is None and isinstance(step.source, ServerSource):
            source = step.source
            pieces = pieces_of(source, ranges_of(source, READER), READER)
            rows = (
                (record, None, source.place_of(split, number))
                for split, first, records in pieces
                for number, record in enumerate(records, first)
            )
        else:
            rows = ((record, time_ms, "") for record, time_ms in _records(step, given))
        for record, time_ms, where in rows:
            try:
                timed = TimedRecord(
                    record, time_ms if step.event_time is None else _time(step.name, step.event_time, record)
                )
            except StepFailed as error:
                self.put(step.name, where, record, record, error.__cause__ or error)
                continue
            if self.passes(step.name, timed, where):
                yield timed

    def passes(self, entry: str, timed: TimedRecord, where: str) -> bool:
        """Return True if no step fails on the record, or on records derived from it before the next shuffle."""
        segment, by_name = self._segments[entry], self._program.by_name
        streams: dict[Ref, list[TimedRecord]] = {Ref(entry): [timed]}
        readers = dict.fromkeys(exchange.reader for exchange in segment.exchanges)
        try:
            for name in (*segment.steps[1:], *readers):
                step = by_name[name]
                records = [_copied(r) for ref in step.inputs for r in streams.get(ref, ())]
                if isinstance(step, ReduceStep) and step.process is not None:
                    _histories(step, records)  # the effect of its handlers depends on all records
                else:
                    _apply(step, records, streams)
        except StepFailed as error:
            self.put(error.step, where, timed.record, error.record, error.__cause__ or error)
            return False
        return True

    def put(self, step: str, where: str, record: Any, failed_on: Any, error: BaseException) -> None:
        """Report a record that is left out."""
        text = shown(failed_on, MAX_FAILED_ON_CHARACTERS)
        self._failed.append(json.loads(failure_line(step, where, record, text, error)))


def _copied(timed: TimedRecord) -> TimedRecord:
    """Return a copy for one reader: its function may change the record in place."""
    return TimedRecord(copied(timed.record), timed.time_ms)


def _source(step: SourceStep, given: Iterable[Any] | None) -> Iterator[TimedRecord]:
    for record, time_ms in _records(step, given):
        yield TimedRecord(record, time_ms if step.event_time is None else _time(step.name, step.event_time, record))


def _records(step: SourceStep, given: Iterable[Any] | None) -> Iterable[tuple[Any, int | None]]:
    if given is not None:
        return ((record, None) for record in given)
    if step.source.kind == "sequence":
        if step.source.stop is None:
            raise TopologyError(f"step {step.name!r}: the sequence has no end; give inputs={{{step.name!r}: […]}}")
        make = step.source.make
        numbers = range(step.source.start, step.source.stop)
        return ((number if make is None else make(number), None) for number in numbers)
    if isinstance(step.source, ServerSource):
        pieces = pieces_of(step.source, ranges_of(step.source, READER), READER)
        return ((record, None) for _, _, records in pieces for record in records)
    return read_all(step.source)


def _apply(
    step: Step,
    records: list[TimedRecord],
    streams: dict[Ref, list[TimedRecord]],
    put: Callable[..., None] | None = None,
) -> None:
    """Put the step's outputs into ``streams``.

    Failures of handlers are passed to ``put``. Without it they are raised.
    """
    out: list[TimedRecord] = []
    if isinstance(step, MapStep):
        out = [TimedRecord(_call(step.name, step.function, r.record), r.time_ms) for r in records]
    elif isinstance(step, FlatMapStep):
        out = [TimedRecord(e, r.time_ms) for r in records for e in _call(step.name, _listed(step.function), r.record)]
    elif isinstance(step, FilterStep):
        out = [r for r in records if _call(step.name, lambda record: bool(step.function(record)), r.record)]
    elif isinstance(step, BranchStep):
        for output in range(len(step.predicates) + 1):
            streams[Ref(step.name, output)] = []
        for r in records:
            chosen = (n for n, p in enumerate(step.predicates) if _call(step.name, p, r.record))
            streams[Ref(step.name, next(chosen, len(step.predicates)))].append(r)
        return
    elif isinstance(step, TapStep):
        for r in records:
            _call(step.name, step.function, r.record)
        out = records
    elif isinstance(step, LogStep):
        for r in records:
            log.log(getattr(logging, step.level), "%s: %s", step.name, shown(r.record))
        out = records
    elif isinstance(step, ReduceStep) and step.process is not None:
        out = list(_processed(step, records, put))
        streams[Ref(step.name, LATE)] = []
    elif isinstance(step, ReduceStep):
        reduce = _sessions if step.merges else _windows if step.windowing else _keys
        out = list(reduce(step, records))
        streams[Ref(step.name, LATE)] = []
    elif isinstance(step, UnionStep | SinkStep):
        out = records
    streams[Ref(step.name)] = out


def _keys(step: ReduceStep, records: list[TimedRecord]) -> Iterator[TimedRecord]:
    groups: dict[bytes, tuple[Any, list[Any]]] = {}
    for r in records:
        key = _key_of(step, r.record)
        groups.setdefault(_encoded(step, key), (key, []))[1].append(_call(step.name, step.value, r.record))
    for key, values in groups.values():
        yield TimedRecord(KeyValue(key, _reduced(step, values)), None)


def _windows(step: ReduceStep, records: list[TimedRecord]) -> Iterator[TimedRecord]:
    assert step.windowing is not None
    window = step.windowing.window
    groups: dict[tuple[bytes, int], tuple[Any, list[Any]]] = {}
    for r in records:
        key = _key_of(step, r.record)
        value = _call(step.name, step.value, r.record)
        for start in window.starts(_time_in(step, r)):
            groups.setdefault((_encoded(step, key), start), (key, []))[1].append(value)
    for (_, start), (key, values) in groups.items():
        end = start + window.length_ms
        yield TimedRecord(Windowed(key, start, end, _reduced(step, values)), end - 1)


def _sessions(step: ReduceStep, records: list[TimedRecord]) -> Iterator[TimedRecord]:
    assert step.windowing is not None
    gap_ms = step.windowing.window.length_ms
    groups: dict[bytes, tuple[Any, list[tuple[int, Any]]]] = {}
    for r in records:
        key, value = _key_of(step, r.record), _call(step.name, step.value, r.record)
        groups.setdefault(_encoded(step, key), (key, []))[1].append((_time_in(step, r), value))
    for key, timed in groups.values():
        timed.sort(key=itemgetter(0))
        begins = [n for n, (time_ms, _) in enumerate(timed) if n == 0 or time_ms - timed[n - 1][0] > gap_ms]
        for first, behind in pairwise([*begins, len(timed)]):
            end = timed[behind - 1][0] + gap_ms
            value = _reduced(step, [value for _, value in timed[first:behind]])
            yield TimedRecord(Windowed(key, timed[first][0], end, value), end - 1)


def _histories(step: ReduceStep, records: list[TimedRecord]) -> list[tuple[Any, list[tuple[int, Any]]]]:
    """Return the records of each key, with their times."""
    groups: dict[bytes, tuple[Any, list[tuple[int, Any]]]] = {}
    for r in records:
        key = _key_of(step, r.record)
        groups.setdefault(_encoded(step, key), (key, []))[1].append((_time_in(step, r), r.record))
    return list(groups.values())


def _processed(step: ReduceStep, records: list[TimedRecord], put: Callable[..., None] | None) -> Iterator[TimedRecord]:
    """Process each key's records and timers, in order of time."""
    assert step.process is not None
    for key, timed in _histories(step, records):
        waiting = deque(sorted(timed, key=lambda pair: (pair[0], canonical(pair[1]), repr(pair[1]))))
        timers: dict[str, int] = {}
        context: Context[Any, Any]
        state, alone = None, 0
        while waiting or timers:
            timer = min(((at_ms, name) for name, at_ms in timers.items()), default=None)
            if waiting and (timer is None or waiting[0][0] <= timer[0]):
                (now_ms, given), alone = waiting.popleft(), 0
                context, handler, failed_on = Context(key, now_ms, state, now_ms), step.process.on_record, given
            else:
                assert timer is not None
                (now_ms, given), alone = timer, alone + 1
                del timers[given]
                context, handler = Context(key, now_ms, state, now_ms + 1), step.process.on_timer
                failed_on = [key, now_ms, given]
            try:
                (handler if alone <= MOST_ALONE else refuse_endless_timers)(context, given)
            except Exception as error:
                if put is None:
                    raise StepFailed(step.name, failed_on) from error
                put(step.name, "", failed_on, failed_on, error)
                continue
            state = context.state
            timers |= {name: at_ms for name, at_ms in context.timers.items() if at_ms is not None}
            timers = {name: at_ms for name, at_ms in timers.items() if context.timers.get(name, at_ms) is not None}
            yield from (TimedRecord(record, now_ms) for record in context.emitted)


def _time_in(step: ReduceStep, r: TimedRecord) -> int:
    """Return the record's time for the windows of this reducer."""
    assert step.windowing is not None
    own, named = step.windowing.event_time, step.window_step or step.name
    time_ms = r.time_ms if own is None else _time(named, own, r.record)
    if time_ms is None:
        raise StepFailed(named, r.record) from EventTimeError("no event time")
    return time_ms


def _reduced(step: ReduceStep, values: list[Any]) -> Any:
    def reduce(those: list[Any]) -> Any:
        return step.monoid.finish(step.monoid.folded(those))

    return _call(step.name, reduce, values)


def _key_of(step: ReduceStep, record: Any) -> Any:
    return key_by_instant(_call(step.name, step.key, record))


def _encoded(step: ReduceStep, key: Any) -> bytes:
    try:
        return encode(key)
    except UnsupportedKey as error:
        raise StepFailed(step.key_step or step.name, key) from error


def _time(step: str, time: EventTime, record: Any) -> int:
    def extract(this: Any) -> int:
        return to_ms(time.extractor(this), time.unit)

    return int(_call(step, extract, record))


def _listed(function: Any) -> Any:
    def listed(record: Any) -> list[Any]:
        return list(function(record))

    return listed


def _call(step: str, function: Any, record: Any) -> Any:
    try:
        return function(record)
    except Exception as error:
        raise StepFailed(step, record) from error
