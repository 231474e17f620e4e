"""Outputs of a stage: rows to reducers (combined), blocks to chains, records to sinks, and marks of event time."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from typing import Any

from heronry.api.component import Bolt
from heronry.streamlet.combine import Combiner
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.split_reports import SplitReport
from heronry.streamlet.online.stages import (
    MARKS,
    RECORDS,
    SPLIT,
    SPLITS,
    ProgramStage,
    StageGraph,
    exchange_stream,
    rows_stream,
    view_of,
)
from heronry.streamlet.online.watermark import Mark, Watermark
from heronry.streamlet.program import ReduceStep
from heronry.streamlet.windows import Window

Channel = tuple[int, int]  # (sending task, origin task)
PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class ReducerTarget:
    """Reducer that this stage combines for, with the event time received and the last mark sent to it."""

    def __init__(
        self,
        step: ReduceStep,
        bucket_ms: int | None,
        channels: list[Channel],
        latest_time: Callable[[], int],
        counted: bool,
        reported: Collection[int],
    ) -> None:
        self.step = step
        self._counted = counted  # rows carry their number of records
        self._combiner = Combiner(step, Window(bucket_ms, bucket_ms) if bucket_ms else None, latest_time, counted)
        windowing = step.windowing
        own = windowing is not None and windowing.event_time is not None
        # Greatest times since the last report, by origin and split.
        self._split_times: dict[int, dict[str, int]] = {origin: {} for origin in reported} if own else {}
        self.watermark = Watermark(channels, [c for c in channels if c[1] in self._split_times])
        # The buckets of a view never close, but the view states up to which time they are complete.
        self.windowed = windowing is not None or bucket_ms is not None
        self.from_source = windowing.event_time is None if windowing else bucket_ms is not None
        self._offset_ms = windowing.window.length_ms + windowing.wait_ms if windowing else 0
        self._every_ms = windowing.window.every_ms if windowing else bucket_ms or 1
        self._told: tuple[Mark, int] | None = None

    def combine(self, block: Block) -> tuple[list[Any], int | None]:
        """Return the rows of a block, and the greatest event time seen if the window extracts its own.

        Raises:
            StepFailed: A function failed on a record, or an accumulator cannot be sent.
        """
        try:
            latest = self._combiner.add(block.records, block.times_ms)
        finally:
            numbers = self._combiner.record_counts() if self._counted else []
            rows = list(self._combiner.take())
        accs = (row[-1][1] for row in rows) if self.step.merges else (row[-1] for row in rows)
        if not {*map(type, accs)} <= PLAIN:
            _pickled(rows, self.step.name)
        if self._counted:
            rows = [(*row, number) for row, number in zip(rows, numbers, strict=True)]
        return rows, latest

    def saw(self, channel: Channel, split: str, time_ms: int) -> None:
        """Note the greatest time that the window has found in a block."""
        times = self._split_times.get(channel[1])
        if times is None:
            self.watermark.seen(channel, time_ms)
        else:
            times[split] = max(time_ms, times.get(split, time_ms))

    def take_split_times(self, origin: int) -> dict[str, int] | None:
        """Return the times since the last call, by split. None if the window takes the time of the source."""
        times = self._split_times.get(origin)
        if times is not None:
            self._split_times[origin] = {}
            self._told = None  # a reducer that has restarted needs the last mark again
        return times

    def news(self) -> tuple[Mark, int] | None:
        """Return a mark that is worth sending, or None: one that closes a window, or states idleness or the end."""
        time_ms = self.watermark.advance()
        if self.watermark.is_final:
            told, mark = (Mark.FINAL, 0), Mark.FINAL
        elif self.watermark.is_idle:
            told, mark = (Mark.IDLE, 0), Mark.IDLE
        elif self.watermark.is_apart:
            told, mark = (Mark.APART, 0), Mark.APART
        elif not self.windowed or time_ms is None:
            return None
        else:
            # Windows close only when (time - offset) passes a multiple of the step.
            told, mark = (Mark.TIME, (time_ms - self._offset_ms) // self._every_ms), Mark.TIME
        if told == self._told:
            return None
        self._told = told
        return mark, time_ms if mark is Mark.TIME and time_ms is not None else 0


class StageOutputs:
    """Outgoing side of one bolt. For ``channels`` see watermark.py."""

    def __init__(
        self, bolt: Bolt, stages: StageGraph, stage: ProgramStage, sinks: SinkSet, channels: list[Channel],
        latest_time: Callable[[], int], fields_of: Callable[[str], tuple[str, ...]], reported: Collection[int] = (),
    ) -> None:  # fmt: skip
        """Set up the outputs.

        Args:
            bolt: The bolt that emits.
            stages: The stages of the program.
            stage: The stage of the bolt.
            sinks: The sinks of the stage.
            channels: The channels of the input.
            latest_time: Function that returns the latest valid event time.
            fields_of: Function that returns the declared fields of a stream.
            reported: Origins whose progress arrives by split.
        """
        self._bolt = bolt
        program = stages.program
        self._targets: list[ReducerTarget] = []
        for name in stage.combines:
            step = program.by_name[name]
            assert isinstance(step, ReduceStep)
            view = view_of(program, step) if step.windowing is None else None
            counted = RECORDS in fields_of(rows_stream(name))  # a topology of an earlier version lacks it
            bucket_ms = view.bucket_ms if view else None
            self._targets.append(ReducerTarget(step, bucket_ms, channels, latest_time, counted, reported))
        refs = dict.fromkeys(exchange.ref for exchange in stage.exchanges)
        self._exchanges = {ref: SPLIT in fields_of(exchange_stream(ref)) for ref in refs}  # True if it names the split
        self._sinks = sinks

    def arrived(self, channel: Channel, times_ms: list[int] | None) -> None:
        """Note that records arrived over a channel, with their event times if those are needed."""
        latest = max(times_ms) if times_ms else None
        for target in self._targets:
            if target.from_source and latest is not None:
                target.watermark.seen(channel, latest)
            else:
                target.watermark.busy(channel)

    def deliver(self, streams: Streams, channel: Channel, origin: int, split: str = "") -> None:
        """Deliver everything that resulted from one block, which is of one split.

        Everything that can fail, including pickling, is done before anything is emitted or taken.

        Raises:
            StepFailed: A record cannot be combined, sent or written.
        """
        rows = []
        for target in self._targets:
            block = streams.get(target.step.input)
            if block is not None and block.records:
                made, seen_ms = target.combine(block)
                rows.append((rows_stream(target.step.name), made))
                if seen_ms is not None:
                    target.saw(channel, split, seen_ms)
        blocks = [
            (ref, (origin, _pickled(block.records, ref.step), block.times_ms, block.ids, *([split] if named else ())))
            for ref, named in self._exchanges.items()
            if (block := streams.get(ref)) is not None and block.records
        ]
        self._sinks.add(streams)
        emit_many = self._bolt.emit_many
        for ref, row in blocks:
            emit_many([row], exchange_stream(ref))
        for stream, made in rows:
            emit_many(made, stream)

    # Marks.

    def mark(self, channel: Channel, mark: Mark, time_ms: int) -> None:
        """Apply a mark of event time that the sender of a channel has sent."""
        for target in self._targets:
            if mark not in (Mark.TIME, Mark.MARKED) or target.from_source:
                target.watermark.mark(channel, mark, time_ms)

    def tell(self) -> None:
        """Send new marks to reducers."""
        for target in self._targets:
            news = target.news()
            if news is not None:
                self._emit_mark(news[0], 0, news[1], target.step.name)

    def forward(self, origin: int, mark: Mark, time_ms: int) -> None:
        """Send the progress of an origin to chains."""
        if self._exchanges:
            self._emit_mark(mark, origin, time_ms, "")

    def report_splits(self, origin: int, statement: SplitReport) -> None:
        """Report the times by split to reducers, and forward the statement of the source to chains."""
        number, active, idle, _ = statement
        for target in self._targets:
            times = target.take_split_times(origin)
            if times is not None:
                self._bolt.emit((origin, number, target.step.name, active, idle, times), SPLITS)
        if self._exchanges:
            self._bolt.emit((origin, number, "", active, idle, {}), SPLITS)

    def _emit_mark(self, mark: Mark, origin: int, time_ms: int, target: str) -> None:
        self._bolt.emit((int(mark), origin, time_ms, target), MARKS)

    @property
    def has_exchanges(self) -> bool:
        """True if chains read this stage."""
        return bool(self._exchanges)

    # State. Marks that were sent are not part of it: they are sent again.

    def saved(self) -> dict[str, Any]:
        """Return the progress of event time, by reducer, for a checkpoint."""
        return {target.step.name: target.watermark.saved() for target in self._targets}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restore the progress of event time from a checkpoint."""
        for target in self._targets:
            if target.step.name in saved:
                target.watermark.restore(saved[target.step.name])


def _pickled(records: list[Any], step: str) -> bytes:
    """Return the pickled records.

    Raises:
        StepFailed: A record cannot be pickled.
    """
    try:
        return pickle.dumps(records, 5)
    except Exception:
        for record in records:
            try:
                pickle.dumps(record, 5)
            except Exception as error:
                raise StepFailed(step, record) from error
        raise
