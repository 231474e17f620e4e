"""Bolt of a chain: fused record-wise steps, and the map side of the reducers downstream.

One tuple is one block of records.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from heronry.api.tuples import Tuple
from heronry.streamlet.columns import each, refuse_future, times_of
from heronry.streamlet.decoding import UNREADABLE, decode_content, place_of, singly
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import joined
from heronry.streamlet.online.outlet import Channel, StageOutputs
from heronry.streamlet.online.rows import decoder_of
from heronry.streamlet.online.settings import latest_time
from heronry.streamlet.online.split_reports import AlignedReports, SplitReport
from heronry.streamlet.online.stage_bolt import RECORD_FAILURES, FailedRecordWriter, StageBolt
from heronry.streamlet.online.stages import (
    BLOCKS,
    MARKS,
    SPLITS,
    ProgramStage,
    StageGraph,
    StageKind,
    exchange_stream,
    has_stream,
    needs_ids,
    needs_times,
)
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import Ref, SourceStep
from heronry.streamlet.reading import FilePiece, Records

ARRIVALS, TARGETS = "arrivals", "targets"  # keys in the task's state


class ChainBolt(StageBolt):
    """Task of a chain."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Set up the stage, and restore the progress of event time."""
        _, stages, stage = self.begin_stage(config, context)
        self._readers = _readers_of(stages, stage, latest_time(config))
        self._channels = _channels_of(stages, stage, context)
        origins = {origin for found in stages.origins(stage.name).values() for origin in found}
        reducers = [origin for origin in origins if stages.stage(origin).kind is StageKind.REDUCER]
        # For the results of a reducer, and a source task of several splits, only marks state the time.
        self._by_marks = {task for origin in reducers for task in context.get_component_tasks(origin)}
        self._arrivals = Watermark(self._channels)
        self._moved: dict[int, int] = {}  # origin → its greatest time that is not yet forwarded
        self._reports = {
            origin: AlignedReports(senders) for origin, senders in reporters_of(stages, stage, context).items()
        }
        self.outlet = StageOutputs(
            self, stages, stage, self.sinks, self._channels, latest_time(config), self.fields_of, self._reports
        )
        if ARRIVALS in self.state:
            self._arrivals.restore(self.state[ARRIVALS])
            self.outlet.restore(self.state[TARGETS])
        self.final = self._arrivals.is_final

    def process(self, tup: Tuple) -> None:
        """Process one block or one mark."""
        if tup.stream == MARKS:
            self._on_mark(tup)
        elif tup.stream == SPLITS:
            self._on_splits(tup)
        else:
            self._on_block(tup)

    def _on_block(self, tup: Tuple) -> None:
        ref, reader = self._readers[tup.component, tup.stream]

        def run(block: Block) -> None:
            self._run(ref, reader.prepared(block), (tup.task or 0, origin), reader.split_of(tup))

        try:
            origin, found = reader.read(tup)
            run(found)
            self.letters.passed(len(found))
        except (*UNREADABLE, *RECORD_FAILURES) as failed:
            if not self.letters.policy.aside:
                if isinstance(failed, StepFailed):
                    failed.where = reader.where(tup)
                raise
            origin, found, places = reader.sifted(tup, self.letters)
            self.letters.sift(found, run, lambda index: places[index] if places else "")
        self.outlet.tell()

    def _run(self, ref: Ref, block: Block, channel: Channel, split: str) -> None:
        origin = channel[1]
        times = None if origin in self._by_marks else block.times_ms
        self.outlet.arrived(channel, times)
        if times and self.outlet.has_exchanges and not self._arrivals.is_held([channel]):
            latest = max(times)
            self._moved[origin] = max(self._moved.get(origin, latest), latest)
        self.outlet.deliver(self.chain.run(ref, block), channel, origin, split)

    def process_tick(self, tup: Tuple) -> None:
        """Forward the progress of the origins."""
        super().process_tick(tup)
        self._forward()

    def _forward(self) -> None:
        moved, self._moved = self._moved, {}
        for origin, time_ms in moved.items():
            self.outlet.forward(origin, Mark.TIME, time_ms)
        self.outlet.tell()

    def _on_mark(self, tup: Tuple) -> None:
        kind, origin, time_ms, target = tup.values
        if target:
            return  # meant for a reducer
        mark, channel = Mark(kind), (tup.task or 0, origin)
        self._arrivals.mark(channel, mark, time_ms)
        self.outlet.mark(channel, mark, time_ms)
        # An origin received through several tasks is idle, or at its end, once it is so on each channel.
        ways = [c for c in self._channels if c[1] == origin]
        if mark is Mark.MARKED:
            self._by_marks.add(origin)
            self._moved.pop(origin, None)
            self.outlet.forward(origin, mark, time_ms)
        elif mark in (Mark.HOLD, Mark.RELEASE):
            self._moved.pop(origin, None)
            self.outlet.forward(origin, Mark.HOLD if self._arrivals.is_held(ways) else Mark.RELEASE, time_ms)
        elif mark is Mark.TIME or self._arrivals.origin_is(mark, ways):
            self.outlet.forward(origin, mark, time_ms)
        self.outlet.tell()
        self.final = self._arrivals.is_final

    def _on_splits(self, tup: Tuple) -> None:
        origin, number, reducer, *report = tup.values
        if reducer or origin not in self._reports:
            return  # meant for a reducer
        for aligned in self._reports[origin].add(tup.task or 0, SplitReport(number, *report))[-1:]:
            self.outlet.report_splits(origin, aligned)
            self.outlet.tell()

    def keep_state(self) -> None:
        """Store the progress of event time in the task's state."""
        self._forward()
        self.state[ARRIVALS], self.state[TARGETS] = self._arrivals.saved(), self.outlet.saved()


def _channels_of(stages: StageGraph, stage: ProgramStage, context: Any) -> list[Channel]:
    channels: list[Channel] = []
    for name, origins in stages.origins(stage.name).items():
        tasks = context.get_component_tasks(name)
        for origin in origins:
            if origin == name:
                channels += [(t, t) for t in tasks]
            else:
                channels += [(t, o) for t in tasks for o in context.get_component_tasks(origin)]
    return channels


def reporters_of(stages: StageGraph, stage: ProgramStage, context: Any) -> dict[int, list[int]]:
    """Return, for each source task whose progress arrives by split, the tasks that send it to this stage."""
    senders: dict[int, list[int]] = {}
    for before, sources in stages.reported(stage.name).items():
        if not has_stream(context, before, SPLITS):
            continue
        for source in sources:
            for origin in context.get_component_tasks(source):
                ways = [origin] if source == before else context.get_component_tasks(before)
                senders.setdefault(origin, []).extend(ways)
    return senders


def _readers_of(stages: StageGraph, stage: ProgramStage, latest_time: Callable[[], int]) -> dict[tuple[str, str], Any]:
    """Return the output of the program and its reader, by component and stream of the input."""
    found: dict[tuple[str, str], Any] = {}
    for name in stages.origins(stage.name):
        before = stages.stage(name)
        for exchange in before.exchanges:
            if exchange.reader != stage.name:
                continue
            if before.kind is StageKind.SOURCE:
                step = stages.program.by_name[exchange.ref.step]
                assert isinstance(step, SourceStep)
                wanted = needs_times(stages.program, step), needs_ids(stages.program, step)
                found[name, BLOCKS] = (exchange.ref, SourceReader(step, *wanted, latest_time))
            else:
                found[name, exchange_stream(exchange.ref)] = (exchange.ref, ExchangeReader())
    return found


class SourceReader:
    """Reader of the tuples of a source, as blocks of records."""

    def __init__(self, step: SourceStep, times: bool, ids: bool, latest_time: Callable[[], int]) -> None:
        self._step, self._latest_time = step, latest_time
        self._ids = ids
        self._time = step.event_time if times else None
        self._own_times = times and step.event_time is None
        self._decoder = decoder_of(step.source)

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """Return the origin (the source's task) and the block.

        Raises:
            ReadError: A record cannot be decoded.
        """
        file, first, count, header, data = tup.values
        if self._decoder is None:
            return tup.task or 0, self._block(
                file, Records(list(range(first, first + count)), range(first, first + count))
            )
        return tup.task or 0, self._block(file, self._decoder.decode(file, FilePiece(first, header, data, 0, 0)))

    def sifted(self, tup: Tuple, letters: FailedRecordWriter) -> tuple[int, Block, list[str]]:
        """Read a tuple, and put aside the lines or rows that cannot be decoded.

        Returns:
            The origin, the block of the other records, and the place of each record for messages. The places are empty
            for a
            sequence.
        """
        source, (file, first, _, header, data) = self._step.source, tup.values
        if self._decoder is None or isinstance(source, SequenceSource):
            return *self.read(tup), []
        found = Block([], [] if self._own_times else None, [] if self._ids else None)
        places: list[str] = []
        for piece in singly(source, FilePiece(first, header, data, 0, 0)):
            try:
                read = self._decoder.decode(file, piece)
            except UNREADABLE as error:
                text = decode_content(source, piece)
                failed = StepFailed(self._step.name, text)
                failed.__cause__ = error
                letters.put(text, failed, place_of(source, file, piece.first))
                continue
            found = joined(found, self._block(file, read))
            places += [place_of(source, file, number) for number in read.numbers]
        return tup.task or 0, found, places

    def _block(self, file: str, found: Records) -> Block:
        times = found.times_ms if self._own_times else None
        ids = None
        if self._ids:
            prefix = f"{self._step.name}:{file}:"
            ids = found.ids or [(f"{prefix}{number}", "") for number in found.numbers]
        return Block(found.records, times, ids)

    def prepared(self, block: Block) -> Block:
        """Apply the sequence's function to its numbers, and add event times.

        Raises:
            StepFailed: A function failed on a record, or an event time is too far in the future.
        """
        source, records = self._step.source, block.records
        if isinstance(source, SequenceSource) and source.make is not None:
            records = each(self._step.name, source.make, records)
        times = block.times_ms
        if self._time is not None:
            times = times_of(self._step.name, self._time, records)
            refuse_future(self._step.name, times, records, self._latest_time())
        return Block(records, times, block.ids)

    def split_of(self, tup: Tuple) -> str:
        """Return the name of the split in its blocks."""
        return str(tup.values[0])

    def where(self, tup: Tuple) -> str:
        """Return the file and the place in it that a block came from, for messages."""
        source = self._step.source
        if isinstance(source, SequenceSource):
            return ""
        file, _, place = place_of(source, *tup.values[:2]).rpartition(", ")
        return f"{file}, from {place} on"


class ExchangeReader:
    """Reader of the tuples of a chain or reducer, as blocks of records."""

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """Return the origin and the block."""
        origin, records, times, ids = tup.values[:4]
        return origin, Block(pickle.loads(records), times, ids)

    def sifted(self, tup: Tuple, letters: FailedRecordWriter) -> tuple[int, Block, list[str]]:
        """Return the same as ``read``, without places, which are unknown here."""
        return *self.read(tup), []

    def prepared(self, block: Block) -> Block:
        """Return the block unchanged."""
        return block

    def split_of(self, tup: Tuple) -> str:
        """Return the name of the split in its blocks, or an empty text if the stream does not state it."""
        return tup.values[4] if len(tup.values) > 4 else ""

    def where(self, tup: Tuple) -> str:
        """Return an empty text: the file is unknown here."""
        return ""
