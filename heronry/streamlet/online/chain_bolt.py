"""A chain: fused record-wise steps, and the map side of the reducers behind them. One tuple is one block of records."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from heronry.api.tuples import Tuple
from heronry.streamlet.columns import each, refuse_future, times_of
from heronry.streamlet.decoding import UNREADABLE, place_of, singly, told_of
from heronry.streamlet.endpoints import SequenceSource
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import joined
from heronry.streamlet.online.letters import RECORD_FAILURES, FailedRecordWriter
from heronry.streamlet.online.outlet import StageOutputs
from heronry.streamlet.online.rows import decoder_of
from heronry.streamlet.online.settings import latest_time
from heronry.streamlet.online.stage_bolt import StageBolt
from heronry.streamlet.online.stages import ProgramStage, StageGraph, StageKind, needs_ids, needs_times
from heronry.streamlet.online.streams import BLOCKS, MARKS, exchange_stream
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import Ref, SourceStep
from heronry.streamlet.reading import FilePiece, Records

Channel = tuple[int, int]  # (sending task, origin task)
ARRIVALS, TARGETS = "arrivals", "targets"  # in the task's state


class ChainBolt(StageBolt):
    """One task of a chain."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the stage, and how far event time had come here."""
        _, stages, stage = self.begin_stage(config, context)
        self._readers = _readers_of(stages, stage, latest_time(config))
        self._channels = _channels_of(stages, stage, context)
        origins = {origin for found in stages.origins(stage.name).values() for origin in found}
        reducers = [origin for origin in origins if stages.stage(origin).kind is StageKind.REDUCER]
        # Of a reducer's results marks alone tell how far event time is.
        self._by_marks = {task for origin in reducers for task in context.get_component_tasks(origin)}
        self._arrivals = Watermark(self._channels)
        self._moved: dict[int, int] = {}  # origin to its greatest time, not yet forwarded
        self.outlet = StageOutputs(self, stages, stage, self.sinks, [*self._channels], latest_time(config))
        if ARRIVALS in self.state:
            self._arrivals.restore(self.state[ARRIVALS])
            self.outlet.restore(self.state[TARGETS])
        self.final = self._arrivals.is_final

    def process(self, tup: Tuple) -> None:
        """One block, or one mark."""
        if tup.stream == MARKS:
            self._on_mark(tup)
        else:
            self._on_block(tup)

    def _on_block(self, tup: Tuple) -> None:
        ref, reader = self._readers[tup.component, tup.stream]

        def run(block: Block) -> None:
            self._run(ref, reader.prepared(block), (tup.task or 0, origin))

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

    def _run(self, ref: Ref, block: Block, channel: Channel) -> None:
        origin = channel[1]
        times = None if origin in self._by_marks else block.times_ms
        self.outlet.arrived(channel, times)
        if times and self.outlet.has_exchanges and not self._arrivals.is_held([channel]):
            latest = max(times)
            self._moved[origin] = max(self._moved.get(origin, latest), latest)
        self.outlet.deliver(self.chain.run(ref, block), channel, origin)

    def process_tick(self, tup: Tuple) -> None:
        """Pass on how far origins have come."""
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
            return  # a reducer's
        mark, channel = Mark(kind), (tup.task or 0, origin)
        self._arrivals.mark(channel, mark, time_ms)
        self.outlet.mark(channel, mark, time_ms)
        # An origin that reaches us over several tasks is idle, or at its end, when it is so on each way.
        ways = [c for c in self._channels if c[1] == origin]
        if mark in (Mark.HOLD, Mark.RELEASE):
            self._moved.pop(origin, None)
            self.outlet.forward(origin, Mark.HOLD if self._arrivals.is_held(ways) else Mark.RELEASE, time_ms)
        elif mark is Mark.TIME or self._arrivals.origin_is(mark, ways):
            self.outlet.forward(origin, mark, time_ms)
        self.outlet.tell()
        self.final = self._arrivals.is_final

    def keep_state(self) -> None:
        """How far event time has come here."""
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


def _readers_of(stages: StageGraph, stage: ProgramStage, latest_time: Callable[[], int]) -> dict[tuple[str, str], Any]:
    """By component and stream: what of the program comes there, and how it is read."""
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
    """What a source emits to blocks of records."""

    def __init__(self, step: SourceStep, times: bool, ids: bool, latest_time: Callable[[], int]) -> None:
        self._step, self._latest_time = step, latest_time
        self._ids = ids
        self._time = step.event_time if times else None
        self._own_times = times and step.event_time is None
        self._decoder = decoder_of(step.source)

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """The origin (the source's task), and the records. Raises ReadError."""
        file, first, count, header, data = tup.values
        if self._decoder is None:
            return tup.task or 0, self._block(
                file, Records(list(range(first, first + count)), range(first, first + count))
            )
        return tup.task or 0, self._block(file, self._decoder.decode(file, FilePiece(first, header, data, 0, 0)))

    def sifted(self, tup: Tuple, letters: FailedRecordWriter) -> tuple[int, Block, list[str]]:
        """The same without the lines or rows that cannot be read, which are put aside. And the place of each record,
        but for sequences."""
        source, (file, first, _, header, data) = self._step.source, tup.values
        if self._decoder is None or isinstance(source, SequenceSource):
            return *self.read(tup), []
        found = Block([], [] if self._own_times else None, [] if self._ids else None)
        places: list[str] = []
        for piece in singly(source, FilePiece(first, header, data, 0, 0)):
            try:
                read = self._decoder.decode(file, piece)
            except UNREADABLE as error:
                text = told_of(source, piece)
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
        """What a sequence's numbers stand for, and event times. Raises StepFailed."""
        source, records = self._step.source, block.records
        if isinstance(source, SequenceSource) and source.make is not None:
            records = each(self._step.name, source.make, records)
        times = block.times_ms
        if self._time is not None:
            times = times_of(self._step.name, self._time, records)
            refuse_future(self._step.name, times, records, self._latest_time())
        return Block(records, times, block.ids)

    def where(self, tup: Tuple) -> str:
        """The file and the place in it that a block came from, for messages."""
        source = self._step.source
        if isinstance(source, SequenceSource):
            return ""
        file, _, place = place_of(source, *tup.values[:2]).rpartition(", ")
        return f"{file}, from {place} on"


class ExchangeReader:
    """What a chain or a reducer emits to blocks of records."""

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """The origin, and the records."""
        origin, records, times, ids = tup.values
        return origin, Block(pickle.loads(records), times, ids)

    def sifted(self, tup: Tuple, letters: FailedRecordWriter) -> tuple[int, Block, list[str]]:
        """The same; places are not known here."""
        return *self.read(tup), []

    def prepared(self, block: Block) -> Block:
        """The same."""
        return block

    def where(self, tup: Tuple) -> str:
        """The file is not known here."""
        return ""
