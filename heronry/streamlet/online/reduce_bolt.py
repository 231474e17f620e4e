"""Bolt of a reducer: adds up the rows of all chains by key, and runs the fused record-wise steps downstream of it.

Accumulators are kept in a table of the task (state.py). At each checkpoint, changed accumulators are packed into
``self.keyed``, so they move when keys move. There is an entry for each key; with windows it is a dict by window start.

The progress of event time, and which windows are closed, are state of the task itself. After a rescale a window is
closed if any task had closed it, since that task has emitted its result. Results are emitted when they are due. Running
results that were not yet shown are emitted before the checkpoint, so a checkpoint never omits a pending result.
"""

from __future__ import annotations

from typing import Any

from heronry.api.metrics import CountMetric
from heronry.api.tuples import Tuple, TupleBatch
from heronry.streamlet.combine import emitted
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain_bolt import reporters_of
from heronry.streamlet.online.outlet import StageOutputs
from heronry.streamlet.online.process_state import ProcessReducerState, kept_of
from heronry.streamlet.online.published import ViewPublisher
from heronry.streamlet.online.session_state import SessionReducerState, packing
from heronry.streamlet.online.settings import latest_time
from heronry.streamlet.online.split_reports import SplitReport, SplitWatermark
from heronry.streamlet.online.stage_bolt import StageBolt
from heronry.streamlet.online.stages import MARKS, SPLITS, view_of
from heronry.streamlet.online.state import ReducerEntry, RowFailed, WindowReducerState
from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark
from heronry.streamlet.process import MomentResult
from heronry.streamlet.program import LATE, Program, ReduceStep, Ref, SinkStep

UPDATE_SECONDS = 1.0
BLOCK_RECORDS = 4096  # size of a block of results
WATERMARK, CLOSED, ENDED, TARGETS = "watermark", "closed", "ended", "targets"  # keys in the task's state


class ReduceBolt(StageBolt):
    """Task of a reducer."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Set up the stage, and restore the accumulators of the keys of this task."""
        program, stages, stage = self.begin_stage(config, context)
        step = program.by_name[stage.name]
        assert isinstance(step, ReduceStep)
        self.step = step
        own = step.windowing is not None and step.windowing.event_time is not None
        reporters = reporters_of(stages, stage, context) if own else {}
        self._splits = {origin: SplitWatermark(senders) for origin, senders in reporters.items()}
        senders = [task for name in stage.inputs for task in context.get_component_tasks(name)]
        self._watermark = Watermark([*senders, *((SPLITS, origin) for origin in self._splits)])
        if WATERMARK in self.state:
            self._watermark.restore(self.state[WATERMARK])
        view = view_of(program, step)
        windowing = step.windowing
        self._windowed = windowing is not None
        self._started = self._windowed or view is not None
        self._shows = _is_read(program, step) or step.process is not None  # handlers may fail
        length_ms, wait_ms = (windowing.window.length_ms, windowing.wait_ms) if windowing else (None, 0)
        self._pack, self._unpack = packing(step)
        table = WindowReducerState(
            step.monoid, length_ms, wait_ms, self._started and not self._windowed and self._shows
        )
        self._state: WindowReducerState | SessionReducerState | ProcessReducerState = table
        if step.process is not None:
            self._state = ProcessReducerState(step.name, step.process, wait_ms)
            self._pack, self._unpack = kept_of(step.name)
        elif step.merges:
            self._state = SessionReducerState(step.monoid, length_ms or 0, wait_ms)
        self._state.restore(self._kept_entries(), self.state.get(CLOSED))
        self._overdue = True
        self.late_count = context.register_metric("late-count", CountMetric())
        self.outlet = StageOutputs(
            self, stages, stage, self.sinks, [(self.task, self.task)], latest_time(config), self.fields_of
        )
        self.outlet.restore(self.state.get(TARGETS, {}))
        self._view: ViewPublisher | None = None
        if view is not None:
            count = context.register_metric("unpublished-count", CountMetric())
            self._view = ViewPublisher(view, step, self.place, config, self.state, table, self.log, count)
            self.writers.append(self._view.files)
        self._shown_at = self.clock()
        self._told_ms: int | None = None
        self._told_final = False
        self.final = bool(self.state.get(ENDED))

    def union_state(self, states: list[dict[Any, Any]]) -> None:
        """Merge the state of all tasks: a window that any of them has closed is closed."""
        super().union_state(states)
        closed = [state[CLOSED] for state in states if state.get(CLOSED) is not None]
        if closed:
            self.state[CLOSED] = max(closed)
        ViewPublisher.unite(self.state, states)

    # Input.

    def process_batch(self, tuples: TupleBatch) -> None:
        """Process rows of chains, or marks."""
        self._close_overdue()
        if tuples.stream == MARKS:
            for tup in tuples:
                self._on_mark(tup)
            return
        if tuples.stream == SPLITS:
            for tup in tuples:
                self._on_splits(tup)
            return
        for task in set(tuples.origin.task_of_start):
            self._watermark.busy(task)
        late = [tuples.rows[place] for place in self._add(tuples)]
        if late:
            self.late_count.incr(sum(row[3] if len(row) > 3 else 1 for row in late))
            self._emit([ReducerEntry(start, key, acc) for key, start, acc, *_ in late], LATE)

    def _add(self, tuples: TupleBatch) -> list[int]:
        """Add all rows, and return the indices of late ones. A row that cannot be added is put aside."""
        rows, late, begin, failures = tuples.rows, [], 0, 0
        while begin < len(rows):
            try:
                late += self._state.add_rows(rows, begin)
                break
            except RowFailed as failed:
                if failed.place > begin:
                    self.letters.passed(failed.place - begin)
                begin, failures = failed.place + 1, failures + 1
                late += failed.late
                error = StepFailed(self.step.name, rows[failed.place][0])
                error.__cause__ = failed.__cause__
                self.letters.put(rows[failed.place][:3], error)
        self.letters.passed(len(rows) - failures)
        return late

    # Time.

    def _on_mark(self, tup: Tuple) -> None:
        kind, _, time_ms, target = tup.values
        if target == self.step.name:
            mark = Mark(kind)
            self._watermark.mark(tup.task, mark, time_ms)
            self._advance(mark)

    def _on_splits(self, tup: Tuple) -> None:
        origin, number, reducer, *report = tup.values
        if reducer != self.step.name or origin not in self._splits:
            return
        splits, channel = self._splits[origin], (SPLITS, origin)
        if splits.add(tup.task or 0, SplitReport(number, *report)):
            self._watermark.busy(channel)
            if splits.value is not None:
                self._watermark.seen(channel, splits.value)
                self._advance(Mark.TIME)
            if splits.is_idle:
                self._watermark.mark(channel, Mark.IDLE)
                self._advance(Mark.IDLE)

    def _advance(self, mark: Mark) -> None:
        watermark_ms = self._watermark.advance()
        if watermark_ms is not None:
            for start, entries in self._state.close(watermark_ms):
                self._closed(start, entries)
        if self._watermark.is_final:
            self._finish()
        else:
            self._tell(mark)

    def _closed(self, start: int, entries: list[ReducerEntry]) -> None:
        if self._view is not None:
            self._view.publish(start, entries)
        self._emit(entries)

    def _close_overdue(self) -> None:
        """Close windows whose keys came, in a rescale, from a task that had made less progress than another."""
        if self._overdue:
            self._overdue = False
            for start, entries in self._state.due():
                self._closed(start, entries)

    def _tell(self, mark: Mark) -> None:
        """Send the progress of event time downstream."""
        windowing, closed_ms = self.step.windowing, self._state.closed_ms
        if windowing is not None and closed_ms is not None and closed_ms != self._told_ms:
            self._told_ms = closed_ms
            if closed_ms < FOREVER - windowing.wait_ms:
                self._pass_on(Mark.TIME, closed_ms)
        if mark is Mark.IDLE and self._watermark.is_idle:
            self._pass_on(Mark.IDLE, 0)

    def _pass_on(self, mark: Mark, time_ms: int) -> None:
        channel = (self.task, self.task)
        self.outlet.mark(channel, mark, time_ms)
        self.outlet.forward(self.task, mark, time_ms)
        self.outlet.tell()

    def _finish(self) -> None:
        """Emit the final results once, since all input has ended. The end itself is sent again after a restore."""
        if not self._windowed and not self.state.get(ENDED):
            if self.step.updates:
                self._update()
            else:
                self._emit(self._state.entries(None))
        self.state[ENDED] = self.final = True
        if not self._told_final:
            self._told_final = True
            self._pass_on(Mark.FINAL, 0)

    # Results.

    def process_tick(self, tup: Tuple) -> None:
        """Emit running results when they are due."""
        super().process_tick(tup)
        self._close_overdue()
        if self.clock() - self._shown_at >= UPDATE_SECONDS:
            self._update()
        if self._watermark.is_final:
            self._finish()

    def _update(self) -> None:
        if not self._windowed and self.step.updates and not self.state.get(ENDED):
            self._shown_at = self.clock()
            self._emit(self._state.take_shown())

    def _emit(self, entries: list[ReducerEntry], output: int = 0) -> None:
        """Pass entries through the steps downstream of the reducer, to sinks and other components."""
        if not self._shows and not output:
            return
        channel, ref = (self.task, self.task), Ref(self.step.name, output)

        def run(block: Block) -> None:
            self.outlet.arrived(channel, None)  # only marks state the time
            self.outlet.deliver(self.chain.run(ref, block), channel, self.task)

        for begin in range(0, len(entries), BLOCK_RECORDS):
            block = self._block(entries[begin : begin + BLOCK_RECORDS], output)
            if block.records:
                self.letters.run(block, run)

    def _block(self, entries: list[ReducerEntry], output: int) -> Block:
        if self.step.process is None or output:
            results = self._finished(entries)
            return Block(results, [r.end - 1 for r in results] if self._windowed else None)
        outcomes: list[MomentResult] = [entry.acc for entry in entries]
        for outcome in outcomes:
            if outcome.error is not None:
                self.letters.put(outcome.record, outcome.error)
        emitted = [outcome for outcome in outcomes if outcome.error is None]
        return Block([outcome.record for outcome in emitted], [outcome.time_ms for outcome in emitted])

    def _finished(self, entries: list[ReducerEntry]) -> list[Any]:
        results: list[Any] = []
        for start, key, acc in entries:
            try:
                results.append(emitted(self.step, key, start, acc))
            except Exception as error:
                failed = StepFailed(self.step.name, key)
                failed.__cause__ = error
                self.letters.put([key, start], failed)
        return results

    # State.

    def keep_state(self) -> None:
        """Emit results that are due, and store what has changed in ``self.keyed``."""
        self._close_overdue()
        self._update()
        dropped, changed = self._state.take_changed()
        if self._view is not None:
            self._view.publish_changed(changed, self._watermark.value)
            more, _ = self._state.take_changed()  # settled buckets
            dropped += more
        self._keep(dropped, changed)
        self.state[WATERMARK], self.state[CLOSED] = self._watermark.saved(), self._state.closed_ms
        self.state[TARGETS] = self.outlet.saved()

    def _keep(self, dropped: list[tuple[int | None, Any]], changed: list[ReducerEntry]) -> None:
        keyed, pack = self.keyed, self._pack
        if not self._started:
            for _, key, acc in changed:
                keyed[key] = pack(acc)
            return
        for start, key in dropped:
            kept = keyed.get(key)
            if kept is not None:
                kept.pop(start, None)
                if not kept:
                    del keyed[key]
        for start, key, acc in changed:
            kept = keyed.get(key)
            if kept is None:
                keyed[key] = {start: pack(acc)}
            else:
                kept[start] = pack(acc)

    def _kept_entries(self) -> list[ReducerEntry]:
        keyed, unpack = self.keyed, self._unpack
        if not self._started:
            return [ReducerEntry(None, key, unpack(keyed.peek(key))) for key in keyed]
        return [ReducerEntry(start, key, unpack(acc)) for key in keyed for start, acc in keyed.peek(key).items()]


def _is_read(program: Program, step: ReduceStep) -> bool:
    """Return True if anything but a view reads the results."""
    readers = program.readers(step.name, 0)
    return any(not (isinstance(r, SinkStep) and isinstance(r.sink, ViewSink)) for r in readers)
