"""A chain: fused record-wise steps, and the map side of the reducers behind them. One tuple is one block of records."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

from heronry.api.component import Bolt
from heronry.api.tuples import Tuple
from heronry.streamlet.columns import each, times_of
from heronry.streamlet.decoding import UNREADABLE, Decoder, place_of, singly
from heronry.streamlet.endpoints import FileSource, SequenceSource
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Chain, joined
from heronry.streamlet.online.dead_letters import RECORD_FAILURES, DeadLetters
from heronry.streamlet.online.locate import STAGE, find
from heronry.streamlet.online.outlet import Outlet
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.stages import StageKind, needs_ids, needs_times, stages_of
from heronry.streamlet.online.streams import BLOCKS, MARKS, PULSES, exchange_stream
from heronry.streamlet.online.task_files import state_folder
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import Ref, SourceStep
from heronry.streamlet.reading import LINES, Piece, Records, path_of

Channel = tuple[int | None, int]  # (sending task, origin task)


class ChainBolt(Bolt):
    """One task of a chain. An exception fails the block in hand; it comes again, and the last time it is sifted."""

    exception_policy = "fail"
    clock = staticmethod(time.monotonic)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the program and this stage of it."""
        program = find(config)
        stages = stages_of(program)
        self.stage = stage = stages.stage(config[STAGE])
        self.chain = Chain(program, stage.steps, self.log)
        self._readers: dict[tuple[str, str], Any] = {}
        channels: list[Hashable] = []
        for name, origins in stages.origins(stage.name).items():
            before = stages.stage(name)
            tasks = context.get_component_tasks(name)
            for origin in origins:
                mine = [(t, t) for t in tasks] if origin == name else []
                other = [(t, o) for t in tasks for o in context.get_component_tasks(origin)] if not mine else []
                channels += [*mine, *other]
            for exchange in before.exchanges:
                if exchange.reader != stage.name:
                    continue
                if before.kind is StageKind.SOURCE:
                    step = program.by_name[exchange.ref.step]
                    assert isinstance(step, SourceStep)
                    wanted = needs_times(program, step), needs_ids(program, step)
                    self._readers[name, BLOCKS] = (exchange.ref, SourceReader(step, *wanted))
                else:
                    self._readers[name, exchange_stream(exchange.ref)] = (exchange.ref, ExchangeReader())
        origins_of = {origin for origins in stages.origins(stage.name).values() for origin in origins}
        reducers = [origin for origin in origins_of if stages.stage(origin).kind is StageKind.REDUCER]
        # Results may come again, behind later ones: of their origins marks alone tell how far event time is.
        self._by_marks = {task for origin in reducers for task in context.get_component_tasks(origin)}
        self._arrivals = Watermark(channels)
        self._channels = channels
        self._moved: dict[int, int] = {}  # origin to its greatest time, not yet forwarded
        index, of = context.get_task_index(), stage.parallelism
        folder = state_folder(config)
        sinks = SinkSet(program, stage.steps, str(index), of, folder, self.clock)
        self.outlet = Outlet(self, stages, stage, sinks, channels)
        self.letters = DeadLetters(self, config, context, stage.name, folder)

    def process(self, tup: Tuple) -> None:
        """One block, one mark, or one pulse."""
        if tup.stream == MARKS:
            self._on_mark(tup)
        elif tup.stream == PULSES:
            self.outlet.pulse(tup)
            self.ack(tup)
        else:
            self._on_block(tup)

    def _on_block(self, tup: Tuple) -> None:
        ref, reader = self._readers[tup.component, tup.stream]
        tries: int = tup["tries"]

        def run(block: Block) -> None:
            self._run(ref, reader.prepared(block), (tup.task, origin), tup, tries)

        try:
            origin, found = reader.read(tup)
            run(found)
        except (*UNREADABLE, *RECORD_FAILURES) as failed:
            if not self.letters.is_last(tries):
                if isinstance(failed, StepFailed):
                    failed.where = reader.where(tup)
                raise
            origin, found, places = reader.sifted(tup, self.letters)
            self.letters.sift(found, run, lambda index: places[index] if places else "")
        self.outlet.tell()
        self.outlet.settle(tup)

    def _run(self, ref: Ref, block: Block, channel: Channel, tup: Tuple, tries: int) -> None:
        origin = channel[1]
        times = None if origin in self._by_marks else block.times_ms
        self.outlet.arrived(channel, times)
        if times and self.outlet.has_exchanges:
            latest = max(times)
            self._moved[origin] = max(self._moved.get(origin, latest), latest)
        self.outlet.deliver(self.chain.run(ref, block), channel, origin, tup, tries, self.letters.is_last(tries))

    def process_tick(self, tup: Tuple) -> None:
        """Roll the sinks when it is time; pass on how far origins have come."""
        if self.outlet.sinks.due():
            self.outlet.roll()
        moved, self._moved = self._moved, {}
        for origin, time_ms in moved.items():
            self.outlet.forward(origin, Mark.TIME, time_ms)

    def _on_mark(self, tup: Tuple) -> None:
        kind, origin, time_ms, target = tup.values
        if target:
            self.ack(tup)  # a reducer's
            return
        mark, channel = Mark(kind), (tup.task, origin)
        self._arrivals.mark(channel, mark, time_ms)
        self.outlet.mark(channel, mark, time_ms)
        # An origin that reaches us over several tasks is idle, or at its end, when it is so on each way.
        ways = [c for c in self._channels if c[1] == origin]  # type: ignore[index]  # channels are pairs
        if mark is Mark.TIME or self._arrivals.origin_is(mark, ways):
            self.outlet.forward(origin, mark, time_ms, tup)
        self.outlet.tell(tup, again=mark is Mark.FINAL)
        if self._arrivals.is_final:
            self.outlet.roll()
            self.outlet.sinks.finish()
        self.outlet.settle(tup)

    def close(self) -> None:
        """A clean stop: what waits in sinks is worth keeping."""
        self.outlet.roll()


class SourceReader:
    """What a source emits to blocks of records."""

    def __init__(self, step: SourceStep, times: bool, ids: bool) -> None:
        self._step = step
        self._ids = ids
        self._time = step.event_time if times else None
        self._own_times = times and step.event_time is None
        self._decoder = Decoder(step.source) if isinstance(step.source, FileSource) else None

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """The origin (the source's task), and the records. Raises ReadError."""
        file, first, count, header, data, _ = tup.values
        if self._decoder is None:
            return tup.task or 0, self._block(
                file, Records(list(range(first, first + count)), range(first, first + count))
            )
        return tup.task or 0, self._block(file, self._decoder.decode(file, Piece(first, header, data, 0, 0)))

    def sifted(self, tup: Tuple, dead_letters: DeadLetters) -> tuple[int, Block, list[str]]:
        """The same without the lines that cannot be read, which are put aside; of other formats all or nothing. And
        the place of each record, for files."""
        source, (file, first, _, header, data, _) = self._step.source, tup.values
        if self._decoder is None or not isinstance(source, FileSource):
            return *self.read(tup), []
        found = Block([], [] if self._own_times else None, [] if self._ids else None)
        places: list[str] = []
        for piece in singly(source, Piece(first, header, data, 0, 0)):
            try:
                read = self._decoder.decode(file, piece)
            except UNREADABLE as error:
                text = piece.data.decode("utf-8", "replace")
                failed = StepFailed(self._step.name, text)
                failed.__cause__ = error
                dead_letters.put(text, failed, place_of(source, file, piece.first))
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
        return Block(records, times, block.ids)

    def where(self, tup: Tuple) -> str:
        """The file and the place in it that a block came from, for messages."""
        source = self._step.source
        if not isinstance(source, FileSource):
            return ""
        unit = "line" if source.format in LINES else "row"
        return f"{path_of(source, tup.values[0])}, from {unit} {tup.values[1] + 1} on"


class ExchangeReader:
    """What a chain or a reducer emits to blocks of records."""

    def read(self, tup: Tuple) -> tuple[int, Block]:
        """The origin, and the records."""
        origin, records, times, ids, _ = tup.values
        return origin, Block(records, times, ids)

    def sifted(self, tup: Tuple, dead_letters: DeadLetters) -> tuple[int, Block, list[str]]:
        """The same; places are not known here."""
        return *self.read(tup), []

    def prepared(self, block: Block) -> Block:
        """The same."""
        return block

    def where(self, tup: Tuple) -> str:
        """The file is not known here."""
        return ""
