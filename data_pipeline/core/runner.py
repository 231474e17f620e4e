"""Runs a unit inside a Python worker: batches of records in, rows out, nothing kept but the combiners.

Theory of operation. ``map``, ``filter`` and ``flat_map`` are strung together as generators. The ``map`` and ``filter``
of Python would take a StopIteration of the user's function for the end of the records. Only where a stream has several
readers, or branches, records are gathered in chunks. Everything is lazy: a ``flat_map`` that makes a million records of
one does not fill the memory.

When a function raises, an iterator does not tell at which record it was. So the batch is then walked again, record by
record and step by step, to find the step and the record (``locate``); if the second walk does not fail, the function
does not depend on its argument alone, and that is what is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from data_pipeline.core.combine import Limits, PartitionCombiner, Rows, check, letters_of
from data_pipeline.core.failure import RecordFailed, failed
from data_pipeline.core.plan import Node, Unit
from data_pipeline.core.render import InFolders
from heronry.streamlet.aside import letter
from heronry.streamlet.copies import copied, copies
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.lookup import Lookup

log = logging.getLogger("heronry.program")
CHUNK = 4_096
MAPS = ("map", "schema")  # a record for each record


class Runner:
    """One unit over one partition. ``render[tag]`` makes the payload of a sink's record."""

    def __init__(self, unit: Unit, render: dict[int, Callable[[Any], bytes]], limits: Limits | None = None) -> None:
        self.unit = unit
        self.render = render
        self.combiners: dict[int, PartitionCombiner] = {}
        for node in _all_of(unit.nodes):
            for function in node.functions:
                if isinstance(function, Lookup):
                    function.load()  # a table that cannot be read is no record's fault
            if node.reduce is not None:
                self.combiners[node.tag] = PartitionCombiner(node.tag, node.reduce, unit.timed, limits)

    def run(
        self,
        records: Sequence[Any],
        times: Sequence[int | None] | None,
        file: Callable[[int], str],
        again: Callable[[], Sequence[Any]] | None = None,
    ) -> Iterator[Rows]:
        """The rows one batch gives. ``file(i)`` names the input file of record i; ``again`` makes the records once
        more, to find the one that failed: functions may have changed ``records`` in place. Raises RecordFailed."""
        items = iter(records) if not self.unit.timed else zip(records, times or [None] * len(records), strict=True)
        try:
            yield from self._all(self.unit.nodes, items)
        except Exception as error:
            raise self._located(records if again is None else again(), error, file) from error

    def sifted(
        self, records: Sequence[Any], times: Sequence[int | None] | None, places: Sequence[str]
    ) -> Iterator[Rows]:
        """The same for the records that pass when they are tried one by one; letters for the others."""
        kept, letters = [], []
        for index, record in enumerate(records):
            try:
                for node in self.unit.nodes:
                    self._walk(node, copied(record))  # the record itself is run again below, as it was
                kept.append(index)
            except RecordFailed as found:
                cause = found.__cause__ or found
                cause = cause.__cause__ or cause if isinstance(cause, StepFailed) else cause
                failure = found.failure
                letters.append(letter(failure.step, places[index], record, failure.value, cause))
        if letters:
            yield letters_of(letters)
        passed = None if times is None else [times[i] for i in kept]
        yield from self.run([records[i] for i in kept], passed, lambda index: places[kept[index]])

    def finish(self) -> Iterator[Rows]:
        """What the combiners still hold."""
        for combiner in self.combiners.values():
            yield from combiner.flush()

    # The fast way.

    def _all(self, nodes: Sequence[Node], items: Iterator[Any]) -> Iterator[Rows]:
        if len(nodes) == 1:
            yield from self._one(nodes[0], items)
        elif nodes:
            while chunk := list(islice(items, CHUNK)):
                for node in nodes:  # a function may change its record in place, which no other reader may see
                    yield from self._one(node, iter(copies(chunk)))
        else:
            for _ in items:  # a tap at the end: its function is called on the way here
                pass

    def _one(self, node: Node, items: Iterator[Any]) -> Iterator[Rows]:
        if node.kind == "reduce":
            yield from self.combiners[node.tag].add(items)
        elif node.kind in ("sink", "view"):
            yield from self._sink(node, items)
        elif node.kind == "branch":
            yield from self._branch(node, items)
        else:
            yield from self._all(node.outputs[0], _strung(node, items, self.unit.timed))

    def _sink(self, node: Node, items: Iterator[Any]) -> Iterator[Rows]:
        render = self.render[node.tag]
        place = render.place if isinstance(render, InFolders) else None
        records = (record for record, _ in items) if self.unit.timed else items
        while chunk := list(islice(records, CHUNK)):
            payloads = list(map(render, chunk))
            keys = [None] * len(chunk) if place is None else list(map(place, chunk))
            yield Rows(node.tag, keys, [0] * len(chunk), payloads)

    def _branch(self, node: Node, items: Iterator[Any]) -> Iterator[Rows]:
        while chunk := list(islice(items, CHUNK)):
            parts: list[list[Any]] = [[] for _ in node.outputs]
            for item in chunk:
                parts[_chosen(node, item[0] if self.unit.timed else item)].append(item)
            for readers, part in zip(node.outputs, parts, strict=True):
                if readers:
                    yield from self._all(readers, iter(part))

    # The slow way, after an exception.

    def _located(self, records: Sequence[Any], error: Exception, file: Callable[[int], str]) -> RecordFailed:
        for index, record in enumerate(records):
            for node in self.unit.nodes:
                try:
                    self._walk(node, copied(record))
                except RecordFailed as found:
                    return _with_file(found, file(index))
        name = file(0) if records else ""
        if isinstance(error, StepFailed):  # a monoid that fails on two values together, say
            return failed(error.step, error.record, error.__cause__ or error, name)
        if isinstance(error, RecordFailed):  # an accumulator of many records
            return _with_file(error, name)
        return failed(self.unit.entry, "(not found: the same records pass when they are tried one by one)", error, name)

    def _walk(self, node: Node, record: Any) -> None:
        if node.kind == "reduce":
            assert node.reduce is not None
            try:
                check(node.reduce, record)
            except StepFailed as error:
                raise failed(error.step, record, error.__cause__ or error) from error
            return
        try:
            if node.kind in ("sink", "view"):
                render = self.render[node.tag]
                render(record)
                if isinstance(render, InFolders):
                    render.place(record)
                return
            results = list(_results(node, record))
        except Exception as error:  # the user's function
            cause = error.__cause__ if isinstance(error.__cause__, StopIteration) else error  # of the generator
            raise failed(node.step, record, cause) from cause
        for output, result in results:
            for reader in node.outputs[output]:
                self._walk(reader, copied(result))


def _strung(node: Node, items: Iterator[Any], timed: bool) -> Iterator[Any]:
    """The items behind a step with one output."""
    if node.kind == "union":
        return items
    if node.kind == "log":
        level = getattr(logging, node.level)
        return _tapped(lambda record: log.log(level, "%s: %r", node.step, record), items, timed)
    (function,) = node.functions
    if node.kind == "tap":
        return _tapped(function, items, timed)
    if timed:
        if node.kind in MAPS:
            return ((function(record), time) for record, time in items)
        if node.kind == "filter":
            return (item for item in items if function(item[0]))
        return ((element, time) for record, time in items for element in function(record))
    if node.kind in MAPS:
        return (function(record) for record in items)
    if node.kind == "filter":
        return (record for record in items if function(record))
    return chain.from_iterable(function(record) for record in items)


def _tapped(function: Callable[[Any], Any], items: Iterator[Any], timed: bool) -> Iterator[Any]:
    for item in items:
        function(item[0] if timed else item)
        yield item


def _results(node: Node, record: Any) -> Iterator[tuple[int, Any]]:
    """(output, record) pairs of one record."""
    if node.kind == "branch":
        yield _chosen(node, record), record
    elif node.kind in ("union", "log"):
        yield 0, record
    else:
        result = node.functions[0](record)
        if node.kind in MAPS:
            yield 0, result
        elif node.kind == "flat_map":
            yield from ((0, element) for element in result)
        elif node.kind == "tap" or result:
            yield 0, record


def _chosen(node: Node, record: Any) -> int:
    for number, predicate in enumerate(node.functions):
        if predicate(record):
            return number
    return len(node.functions)


def _all_of(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for readers in node.outputs:
            yield from _all_of(readers)


def _with_file(error: RecordFailed, file: str) -> RecordFailed:
    failure = error.failure
    return RecordFailed(type(failure)(failure.step, failure.value, failure.error, failure.traceback, file))
