"""Execution of a unit inside a Python worker: batches of records in, rows out; only the combiners keep state.

``map``, ``filter`` and ``flat_map`` are chained as iterators. Python's ``map`` and ``filter`` would take a
StopIteration of the user's function for the end of the records, so functions are wrapped. Records are gathered in
chunks only where a stream has several readers, or branches. Evaluation is lazy, so a ``flat_map`` that makes a million
records of one does not fill the memory.

An iterator does not tell at which record a function has failed. After an exception the batch is therefore walked again,
record by record and step by step, to find the step and the record (``_located``). If the second walk does not fail, the
function does not depend on its argument alone, and the error says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

from data_pipeline.core.combine import Limits, PartitionCombiner, Rows, check, letters_of
from data_pipeline.core.failure import RecordFailed, failed
from data_pipeline.core.plan import Node, Unit
from data_pipeline.core.render import InFolders
from heron_runtime.model.copies import copied, copies
from heronry.streamlet.aside import failure_line
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.lookup import LookupTable

log = logging.getLogger("heronry.program")
CHUNK = 4_096
MAPS = ("map", "schema")  # kinds that emit one record for each record
ENDS = ("reduce", "sink", "view", "branch")  # kinds that end a chain of steps


class Runner:
    """Executor of one unit over one partition. ``render[tag]`` makes the payload of a sink's record."""

    def __init__(self, unit: Unit, render: dict[int, Callable[[Any], bytes]], limits: Limits | None = None) -> None:
        self.unit = unit
        self.render = render
        self.combiners: dict[int, PartitionCombiner] = {}
        for node in unit.all_nodes():
            for function in node.functions:
                if isinstance(function, LookupTable):
                    function.load()  # now, so that an unreadable table is not reported as a failed record
            if node.reduce is not None:
                self.combiners[node.tag] = PartitionCombiner(node.tag, node.reduce, unit.timed, limits)

    def run(
        self,
        records: Sequence[Any],
        times: Sequence[int | None] | None,
        file: Callable[[int], str],
        again: Callable[[], Sequence[Any]] | None = None,
    ) -> Iterator[Rows]:
        """Yield the rows of one batch.

        Args:
            records: The records of the batch. Functions may change them in place.
            times: Their event times in ms, if there are any.
            file: Returns the name of the input file of record i.
            again: Makes the records again, to find the one that failed. Without it, ``records`` are used.

        Raises:
            RecordFailed: A step failed on a record.
        """
        items = iter(records) if not self.unit.timed else zip(records, times or [None] * len(records), strict=True)
        try:
            yield from self._all(self.unit.nodes, items)
        except Exception as error:
            raise self._located(records if again is None else again(), error, file) from error

    def sifted(
        self, records: Sequence[Any], times: Sequence[int | None] | None, places: Sequence[str]
    ) -> Iterator[Rows]:
        """Yield the rows of the records that pass when tried one by one, and letters for the others."""
        records_kept, letters = [], []
        for index, record in enumerate(records):
            try:
                for node in self.unit.nodes:
                    self._walk(node, copied(record))  # a copy: the record itself is run again below, unchanged
                records_kept.append(index)
            except RecordFailed as found:
                cause = found.__cause__ or found
                cause = cause.__cause__ or cause if isinstance(cause, StepFailed) else cause
                failure = found.failure
                letters.append(failure_line(failure.step, places[index], record, failure.value, cause))
        if letters:
            yield letters_of(letters)
        passed = None if times is None else [times[i] for i in records_kept]
        yield from self.run([records[i] for i in records_kept], passed, lambda index: places[records_kept[index]])

    def finish(self) -> Iterator[Rows]:
        """Yield the remaining rows of the combiners."""
        for combiner in self.combiners.values():
            yield from combiner.flush()

    # Normal execution.

    def _all(self, nodes: Sequence[Node], items: Iterator[Any]) -> Iterator[Rows]:
        if len(nodes) == 1:
            yield from self._one(nodes[0], items)
        elif nodes:
            while chunk := list(islice(items, CHUNK)):
                for node in nodes:  # a function may change its record in place, unseen by other readers
                    yield from self._one(node, iter(copies(chunk)))
        else:
            for _ in items:  # a tap at the end: iteration calls its function
                pass

    def _one(self, node: Node, items: Iterator[Any]) -> Iterator[Rows]:
        if node.kind == "reduce":
            yield from self.combiners[node.tag].add(items)
        elif node.kind in ("sink", "view"):
            yield from self._sink(node, items)
        elif node.kind == "branch":
            yield from self._branch(node, items)
        else:
            items, readers = _strung(node, items, self.unit.timed), node.outputs[0]
            while len(readers) == 1 and readers[0].kind not in ENDS:  # a loop, so that chained steps do not nest
                items, readers = _strung(readers[0], items, self.unit.timed), readers[0].outputs[0]
            yield from self._all(readers, items)

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
                if readers and part:
                    yield from self._all(readers, iter(part))

    # Search for the failed record, after an exception.

    def _located(self, records: Sequence[Any], error: Exception, file: Callable[[int], str]) -> RecordFailed:
        for index, record in enumerate(records):
            for node in self.unit.nodes:
                try:
                    self._walk(node, copied(record))
                except RecordFailed as found:
                    return _with_file(found, file(index))
        name = file(0) if records else ""
        if isinstance(error, StepFailed):  # for example a monoid that fails on two values together
            return failed(error.step, error.record, error.__cause__ or error, name)
        if isinstance(error, RecordFailed):  # for example an accumulator of many records
            return _with_file(error, name)
        return failed(self.unit.entry, "(not found: the same records pass when they are tried one by one)", error, name)

    def _walk(self, node: Node, record: Any) -> None:
        waiting = [(node, record)]
        while waiting:
            node, record = waiting.pop()
            waiting += reversed(self._stepped(node, record))

    def _stepped(self, node: Node, record: Any) -> list[tuple[Node, Any]]:
        """Return the readers of a node, each with a record that the node makes of this one. Raises RecordFailed."""
        if node.kind == "reduce":
            assert node.reduce is not None
            try:
                check(node.reduce, record)
            except StepFailed as error:
                raise failed(error.step, record, error.__cause__ or error) from error
            return []
        try:
            if node.kind in ("sink", "view"):
                render = self.render[node.tag]
                render(record)
                if isinstance(render, InFolders):
                    render.place(record)
                return []
            results = list(_results(node, record))
        except Exception as error:  # the user's function
            cause = error.__cause__ if isinstance(error.__cause__, StopIteration) else error
            raise failed(node.step, record, cause) from cause
        return [(reader, copied(result)) for output, result in results for reader in node.outputs[output]]


def _strung(node: Node, items: Iterator[Any], timed: bool) -> Iterator[Any]:
    """Return the items downstream of a step with one output."""
    if node.kind == "union":
        return items
    if node.kind == "log":
        level = getattr(logging, node.level)
        return map(_tapped(lambda record: log.log(level, "%s: %r", node.step, record), timed), items)
    function = _checked(node.functions[0])
    if node.kind == "tap":
        return map(_tapped(function, timed), items)
    if timed:
        return _timed(node, function, items)
    if node.kind in MAPS:
        return map(function, items)
    return filter(function, items) if node.kind == "filter" else chain.from_iterable(map(function, items))


def _timed(node: Node, function: Callable[[Any], Any], items: Iterator[Any]) -> Iterator[Any]:
    """Return the items downstream of a step for pairs of record and time.

    It avoids generators, since nested generators would count as call depth in a chain of steps.
    """

    def mapped(item: Any) -> Any:
        return function(item[0]), item[1]

    def passes(item: Any) -> Any:
        return function(item[0])

    def elements(item: Any) -> Any:
        return zip(function(item[0]), repeat(item[1]))

    if node.kind in MAPS:
        return map(mapped, items)
    return filter(passes, items) if node.kind == "filter" else chain.from_iterable(map(elements, items))


def _tapped(function: Callable[[Any], Any], timed: bool) -> Callable[[Any], Any]:
    def tap(item: Any) -> Any:
        function(item[0] if timed else item)
        return item

    return tap


def _checked(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function with StopIteration turned into an error: ``map`` and ``filter`` would end at it silently."""

    def call(record: Any) -> Any:
        try:
            return function(record)
        except StopIteration as error:
            raise RuntimeError("the function raised StopIteration") from error

    return call


def _results(node: Node, record: Any) -> Iterator[tuple[int, Any]]:
    """Yield (output, record) pairs that a node makes of one record."""
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


def _with_file(error: RecordFailed, file: str) -> RecordFailed:
    failure = error.failure
    return RecordFailed(type(failure)(failure.step, failure.value, failure.error, failure.traceback, file))
