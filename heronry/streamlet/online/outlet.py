"""Where a stage's records go: to reducers (combined), to chains, into sinks; and telling all how far event time is."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from heronry.api.component import Bolt
from heronry.streamlet.combine import Combiner
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.stages import ProgramStage, StageGraph, view_of
from heronry.streamlet.online.streams import MARKS, exchange_stream, rows_stream
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.windows import Window

PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class ReducerTarget:
    """One reducer that this stage combines for: what has come of event time, and what it was told."""

    def __init__(
        self, step: ReduceStep, bucket_ms: int | None, channels: Iterable[Hashable], latest_time: Callable[[], int]
    ) -> None:
        self.step = step
        self._combiner = Combiner(step, Window(bucket_ms, bucket_ms) if bucket_ms else None, latest_time)
        self.watermark = Watermark(channels)
        windowing = step.windowing
        # A view's buckets never close, but it says how far they are whole.
        self.windowed = windowing is not None or bucket_ms is not None
        self.from_source = windowing.event_time is None if windowing else bucket_ms is not None
        self._offset_ms = windowing.window.length_ms + windowing.wait_ms if windowing else 0
        self._every_ms = windowing.window.every_ms if windowing else bucket_ms or 1
        self._told: tuple[Mark, int] | None = None

    def combine(self, block: Block) -> tuple[list[Any], int | None]:
        """The rows of a block, and the greatest event time seen if it is the window's own. Raises StepFailed."""
        try:
            latest = self._combiner.add(block.records, block.times_ms)
        finally:
            rows = list(self._combiner.take())
        accs = (row[-1][1] for row in rows) if self.step.merges else (row[-1] for row in rows)
        if not {*map(type, accs)} <= PLAIN:
            _pickled(rows, self.step.name)
        return rows, latest

    def news(self) -> tuple[Mark, int] | None:
        """A mark worth sending: one that closes a window, or says that nothing comes (any more)."""
        time_ms = self.watermark.advance()
        if self.watermark.is_final:
            told, mark = (Mark.FINAL, 0), Mark.FINAL
        elif self.watermark.is_idle:
            told, mark = (Mark.IDLE, 0), Mark.IDLE
        elif not self.windowed or time_ms is None:
            return None
        else:
            # Windows close only where (time - offset) passes a multiple of the step.
            told, mark = (Mark.TIME, (time_ms - self._offset_ms) // self._every_ms), Mark.TIME
        if told == self._told:
            return None
        self._told = told
        return mark, time_ms if mark is Mark.TIME and time_ms is not None else 0


class StageOutputs:
    """The outgoing side of one bolt. ``channels``: see watermark.py."""

    def __init__(
        self, bolt: Bolt, stages: StageGraph, stage: ProgramStage, sinks: SinkSet, channels: list[Hashable],
        latest_time: Callable[[], int],
    ) -> None:  # fmt: skip
        self._bolt = bolt
        program = stages.program
        self._targets: list[ReducerTarget] = []
        for name in stage.combines:
            step = program.by_name[name]
            assert isinstance(step, ReduceStep)
            view = view_of(program, step) if step.windowing is None else None
            self._targets.append(ReducerTarget(step, view.bucket_ms if view else None, channels, latest_time))
        self._exchanges = list(dict.fromkeys(exchange.ref for exchange in stage.exchanges))
        self._sinks = sinks

    def arrived(self, channel: Hashable, times_ms: list[int] | None) -> None:
        """Records came over a channel; their event times, if anybody needs them."""
        latest = max(times_ms) if times_ms else None
        for target in self._targets:
            if target.from_source and latest is not None:
                target.watermark.seen(channel, latest)
            else:
                target.watermark.busy(channel)

    def deliver(self, streams: Streams, channel: Hashable, origin: int) -> None:
        """Everything that came of one block. What can fail is done before anything is emitted or taken: that records
        cannot be pickled, too. Raises StepFailed."""
        rows = []
        for target in self._targets:
            block = streams.get(target.step.input)
            if block is not None and block.records:
                made, seen_ms = target.combine(block)
                rows.append((rows_stream(target.step.name), made))
                if seen_ms is not None:
                    target.watermark.seen(channel, seen_ms)
        blocks = [
            (ref, (origin, _pickled(block.records, ref.step), block.times_ms, block.ids))
            for ref in self._exchanges
            if (block := streams.get(ref)) is not None and block.records
        ]
        self._sinks.add(streams)
        emit_many = self._bolt.emit_many
        for ref, row in blocks:
            emit_many([row], exchange_stream(ref))
        for stream, made in rows:
            emit_many(made, stream)

    # Marks.

    def mark(self, channel: Hashable, mark: Mark, time_ms: int) -> None:
        """Event time of a channel, told by its sender."""
        for target in self._targets:
            if mark is not Mark.TIME or target.from_source:
                target.watermark.mark(channel, mark, time_ms)

    def tell(self) -> None:
        """Tell reducers what is new."""
        for target in self._targets:
            news = target.news()
            if news is not None:
                self._emit_mark(news[0], 0, news[1], target.step.name)

    def forward(self, origin: int, mark: Mark, time_ms: int) -> None:
        """Tell chains how far an origin is."""
        if self._exchanges:
            self._emit_mark(mark, origin, time_ms, "")

    def _emit_mark(self, mark: Mark, origin: int, time_ms: int, target: str) -> None:
        self._bolt.emit((int(mark), origin, time_ms, target), MARKS)

    @property
    def has_exchanges(self) -> bool:
        """True if chains read this stage."""
        return bool(self._exchanges)

    # State. What was told is not kept: it is said again.

    def saved(self) -> dict[str, Any]:
        """What has come of event time, by reducer."""
        return {target.step.name: target.watermark.saved() for target in self._targets}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from there."""
        for target in self._targets:
            if target.step.name in saved:
                target.watermark.restore(saved[target.step.name])


def _pickled(records: list[Any], step: str) -> bytes:
    """Raises StepFailed for a record that cannot be sent."""
    try:
        return pickle.dumps(records, 5)
    except Exception:
        for record in records:
            try:
                pickle.dumps(record, 5)
            except Exception as error:
                raise StepFailed(step, record) from error
        raise
