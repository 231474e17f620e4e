"""A chain: fused record-wise steps, and the map side of the reducers behind them. One tuple is one block of records."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

from heronry.api.component import Bolt
from heronry.api.tuples import Tuple
from heronry.streamlet.endpoints import FileSource, SequenceSource
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Chain, each
from heronry.streamlet.online.combine import times_of
from heronry.streamlet.online.compile import BLOCKS, MARKS, hop_stream
from heronry.streamlet.online.locate import STAGE, find
from heronry.streamlet.online.outlet import Outlet
from heronry.streamlet.online.places import state_folder
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.stages import StageKind, cut, needs_ids, needs_times
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import SourceStep
from heronry.streamlet.reading import LINES, Decoder, Piece, Records, path_of
from heronry.streamlet.reference import StepFailed

Channel = tuple[int | None, int]  # (sending task, origin task)


class ChainBolt(Bolt):
    """One task of a chain. An exception fails the block in hand; it comes again from the source."""

    exception_policy = "fail"
    clock = staticmethod(time.monotonic)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the program and this stage of it."""
        program = find(config)
        stages = cut(program)
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
            for hop in before.hops:
                if hop.destination != stage.name:
                    continue
                if before.kind is StageKind.SOURCE:
                    step = program.by_name[hop.ref.step]
                    assert isinstance(step, SourceStep)
                    wanted = needs_times(program, step), needs_ids(program, step)
                    self._readers[name, BLOCKS] = (hop.ref, SourceBlocks(step, *wanted))
                else:
                    self._readers[name, hop_stream(hop.ref)] = (hop.ref, _hop_block)
        self._arrivals = Watermark(channels)
        self._channels = channels
        self._moved: dict[int, int] = {}  # origin to its greatest time, not yet forwarded
        index, of = context.get_task_index(), stage.parallelism
        sinks = SinkSet(program, stage.steps, str(index), of, state_folder(config), self.clock)
        self.outlet = Outlet(self, program, stage, sinks, channels)

    def process(self, tup: Tuple) -> None:
        """One block, or one mark."""
        if tup.stream == MARKS:
            self._on_mark(tup)
            return
        try:
            self._on_block(tup)
        except StepFailed as failed:
            reader = self._readers[tup.component, tup.stream][1]
            failed.where = reader.where(tup) if isinstance(reader, SourceBlocks) else ""
            raise

    def _on_block(self, tup: Tuple) -> None:
        ref, read = self._readers[tup.component, tup.stream]
        origin, block = read(tup)
        channel: Channel = (tup.task, origin)
        self.outlet.arrived(channel, block.times_ms)
        if block.times_ms and self.outlet.has_hops:
            latest = max(block.times_ms)
            self._moved[origin] = max(self._moved.get(origin, latest), latest)
        self.outlet.deliver(self.chain.run(ref, block), channel, origin, tup)
        self.outlet.tell()
        self.outlet.settle(tup)

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


class SourceBlocks:
    """What a source emits to blocks of records."""

    def __init__(self, step: SourceStep, times: bool, ids: bool) -> None:
        self._step = step
        self._ids = ids
        self._time = step.event_time if times else None
        self._own_times = times and step.event_time is None
        self._decoder = Decoder(step.source) if isinstance(step.source, FileSource) else None

    def __call__(self, tup: Tuple) -> tuple[int, Block]:
        """The origin (the source's task), and the records. Raises ReadError, StepFailed."""
        file, first, count, header, data = tup.values
        if self._decoder is not None:
            found = self._decoder.decode(file, Piece(first, header, data, 0, 0))
        else:
            found = self._sequence(first, count)
        times = found.times_ms if self._own_times else None
        if self._time is not None:
            times = times_of(self._step.name, self._time, found.records)
        ids = None
        if self._ids:
            prefix = f"{self._step.name}:{file}:"
            ids = found.ids or [(f"{prefix}{number}", "") for number in found.numbers]
        return tup.task or 0, Block(found.records, times, ids)

    def where(self, tup: Tuple) -> str:
        """The file and the place in it that a block came from, for messages."""
        source = self._step.source
        if not isinstance(source, FileSource):
            return ""
        unit = "line" if source.format in LINES else "row"
        return f"{path_of(source, tup.values[0])}, from {unit} {tup.values[1] + 1} on"

    def _sequence(self, first: int, count: int) -> Records:
        source = self._step.source
        assert isinstance(source, SequenceSource)
        numbers = range(first, first + count)
        made = list(numbers) if source.make is None else each(self._step, source.make, list(numbers))
        return Records(made, numbers)


def _hop_block(tup: Tuple) -> tuple[int, Block]:
    origin, records, times, ids = tup.values
    return origin, Block(records, times, ids)
