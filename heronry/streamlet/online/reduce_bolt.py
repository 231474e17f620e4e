"""The reducer: rows of every chain, added up by key; and the record-wise steps behind it, fused.

Acks: a row is acked when its contribution is on disk (``state_log``), so a reducer that dies has lost nothing: it goes
on from its log, and what was not acked comes again. (It may come again although it was saved, if the process died
between the two: at least once.) State is written once a second, or less often if that takes long. With
``user.streamlet.durable: False`` state is in memory only and rows are acked at once.

Results leave without anchors: a window's entries stay in the log until the sinks of this stage have its result on disk.
What a result leads to in other processes is lost with those; batch corrects it.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.api.tuples import Tuple, TupleBatch
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Chain
from heronry.streamlet.online.compile import MARKS
from heronry.streamlet.online.locate import STAGE, find
from heronry.streamlet.online.outlet import Outlet
from heronry.streamlet.online.places import state_folder
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.stages import cut, view_of
from heronry.streamlet.online.state import Entry, ReduceState, RowFailed, identity
from heronry.streamlet.online.state_log import StateLog
from heronry.streamlet.online.view_files import ViewFiles
from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark
from heronry.streamlet.program import LATE, KeyValue, ReduceStep, Ref, Windowed
from heronry.streamlet.reference import shown

DURABLE = "user.streamlet.durable"
SAVE_SECONDS = 1.0
SAVE_SHARE = 10  # what takes t is done each 10 t at most
SAVE_LATEST_SECONDS = 8.0  # acks wait for it; the message timeout is 30 s
UPDATE_SECONDS = 1.0


class ReduceBolt(Bolt):
    """One task of a reducer."""

    exception_policy = "fail"
    clock = staticmethod(time.monotonic)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the program, and what this task knew before it died."""
        program = find(config)
        stages = cut(program)
        stage = stages.stage(config[STAGE])
        step = program.by_name[stage.name]
        assert isinstance(step, ReduceStep)
        self.step, self.task = step, context.get_task_id()
        index = context.get_task_index()
        folder = state_folder(config)
        self._watermark = Watermark(t for name in stage.inputs for t in context.get_component_tasks(name))
        view = view_of(program, step)
        windowing = step.windowing
        self._state = ReduceState(
            step.monoid,
            windowing.window.length_ms if windowing else None,
            windowing.allowed_lateness_ms if windowing else 0,
        )
        self._view = ViewFiles(view, step, index) if view else None
        self.late_count = context.register_metric("late-count", CountMetric())
        self.failed_count = context.register_metric("failed-result-count", CountMetric())
        channel: Hashable = (self.task, self.task)
        self._channel = channel
        sinks = SinkSet(program, stage.steps, str(index), stage.parallelism, folder, self.clock)
        self.chain = Chain(program, stage.steps, self.log)
        self.outlet = Outlet(self, program, stage, sinks, [channel])
        self._log: StateLog | None = None
        if config.get(DURABLE, True):
            self._log = StateLog(folder / "state" / f"{stage.name}-{index}.log", step.monoid)
            self._state.restore(*self._log.load())
        self._unsaved: list[tuple[TupleBatch, bool]] = []  # acks that wait for the log; True: and for the sinks
        self._unshown: dict[Hashable, Entry] = {}  # changed keys whose running result is not emitted
        self._drops: list[int] = []  # closed windows whose results are not yet on disk
        self._saved_at = self._shown_at = self.clock()
        self._save_each = SAVE_SECONDS

    # Input.

    def process_batch(self, tuples: TupleBatch) -> None:
        """Rows of chains, or marks."""
        if tuples.stream == MARKS:
            for tup in tuples:
                self._on_mark(tup)
            return
        for task in set(tuples.origin.task_of_start):
            self._watermark.busy(task)
        late = self._add(tuples)
        if late:
            self._late(late)
        if self._log is None and not late:
            self.ack_many(tuples)
        else:
            self._unsaved.append((tuples, bool(late)))

    def _add(self, tuples: TupleBatch) -> list[Any]:
        """Add every row; returns those that are late. A row that cannot be added fails alone."""
        rows, late, begin = tuples.rows, [], 0
        while begin < len(rows):
            try:
                late += self._state.add_rows(rows, begin)
                break
            except RowFailed as failed:
                begin = failed.place + 1
                self.log.error(
                    "step %r cannot add key %s", self.step.name, shown(rows[failed.place][0]), exc_info=failed.__cause__
                )
                self.fail(tuples[failed.place], failed.__cause__)
        return [rows[place] for place in late]

    def _late(self, rows: list[Any]) -> None:
        """Rows for closed windows: a stream of their own."""
        assert self.step.windowing is not None
        length_ms = self.step.windowing.window.length_ms
        self.late_count.incr(len(rows))
        self._deliver(LATE, [Entry(start, key, acc) for key, start, acc in rows], length_ms)

    # Time.

    def _on_mark(self, tup: Tuple) -> None:
        kind, _, time_ms, target = tup.values
        if target == self.step.name:
            mark = Mark(kind)
            self._watermark.mark(tup.task, mark, time_ms)
            self._advance(mark)
        self.outlet.settle(tup)

    def _advance(self, mark: Mark) -> None:
        watermark_ms = self._watermark.advance()
        windowing = self.step.windowing
        if windowing is not None and watermark_ms is not None:
            if self._log is not None and self._state.would_close(watermark_ms):
                # First, or the last rows of a window would be acked while neither the log nor a sink has them on disk.
                self._save()
            for start, entries in self._state.close(watermark_ms):
                self._publish(start, entries)
                self._deliver(0, entries, windowing.window.length_ms)
                self._drops.append(start)
            if watermark_ms != FOREVER:
                # Whatever comes now ends behind this.
                self._pass_on(Mark.TIME, watermark_ms - windowing.allowed_lateness_ms)
        if self._watermark.is_final:
            self._finish()
        elif mark is Mark.IDLE and self._watermark.is_idle:
            self._pass_on(Mark.IDLE, 0)

    def _pass_on(self, mark: Mark, time_ms: int) -> None:
        self.outlet.mark(self._channel, mark, time_ms)
        self.outlet.forward(self.task, mark, time_ms)
        self.outlet.tell(again=mark is Mark.FINAL)

    def _finish(self) -> None:
        """Nothing will ever come: final results, and everything on disk."""
        self._save()
        if self.step.windowing is None:
            self._show()
        self._pass_on(Mark.FINAL, 0)
        self.outlet.roll()
        self.outlet.sinks.finish()
        self._save()

    # Results.

    def _deliver(self, output: int, entries: list[Entry], length_ms: int | None) -> None:
        """Finish these entries and send the results on."""
        results: list[Any] = []
        finish = self.step.monoid.finish
        for start, key, acc in entries:
            try:
                value = finish(acc)
            except Exception:
                self.log.exception(
                    "step %r: finish of %r failed on key %s", self.step.name, self.step.monoid, shown(key)
                )
                self.failed_count.incr()
                continue
            if start is None or length_ms is None:
                results.append(KeyValue(key, value))
            else:
                results.append(Windowed(key, start, start + length_ms, value))
        if results:
            times = None if length_ms is None else [result.end - 1 for result in results]
            block = Block(results, times)
            self.outlet.arrived(self._channel, times)
            self.outlet.deliver(self.chain.run(Ref(self.step.name, output), block), self._channel, self.task, None)

    def process_tick(self, tup: Tuple) -> None:
        """Save, show, roll, each when it is time."""
        now = self.clock()
        if now - self._saved_at >= self._save_each:
            self._save()
        if self.step.updates and self.step.windowing is None and now - self._shown_at >= UPDATE_SECONDS:
            self._shown_at = now
            self._show()
        if self.outlet.sinks.due():
            self.outlet.roll()

    def _show(self) -> None:
        """Running results of what has changed."""
        unshown, self._unshown = self._unshown, {}
        if unshown:
            entries = list(unshown.values())
            if self._view is not None:
                entries = self._state.totals(unshown, self.step.monoid)
            self._deliver(0, entries, None)

    def _save(self) -> None:
        """Write what has changed, then ack what it came of."""
        began = self.clock()
        changed = self._state.take_changed()
        if self._view is not None:
            for start in {entry.start for entry in changed if entry.start is not None}:
                self._publish(start, self._state.entries(start))
        if self.step.windowing is None:
            self._unshown.update((identity(entry.key), entry) for entry in changed)
        if self._log is not None:
            self._write(self._log, changed)
        waiting, self._unsaved = self._unsaved, []
        for tuples, late in waiting:
            if late:
                self.outlet.settle(tuples)
            else:
                self.ack_many(tuples)
        self._saved_at = self.clock()
        self._save_each = min(SAVE_LATEST_SECONDS, max(SAVE_SECONDS, SAVE_SHARE * (self._saved_at - began)))

    def _publish(self, start: int, entries: list[Entry]) -> None:
        """Replace a bucket of the view. What cannot be published is said, and stops nothing else."""
        if self._view is not None:
            try:
                self._view.write(start, entries)
            except (TypeError, OverflowError):
                self.log.exception(
                    "the view of step %r wants keys and accumulators that are plain data (None, bool, int, float, str, "
                    "bytes, list, dict): map keys to plain data, or leave the view out",
                    self.step.name,
                )
                self.failed_count.incr()

    def _write(self, log: StateLog, changed: list[Entry]) -> None:
        drops: list[int] = []
        if self.outlet.sinks.clean:
            drops, self._drops = self._drops, []
        closed_ms = None if self._drops else self._state.closed_ms
        if changed or drops:
            log.append(changed, drops, closed_ms)
            if log.wants_rewrite() and not self._drops:
                log.rewrite(self._state.all_entries(), self._state.closed_ms)

    def close(self) -> None:
        """A clean stop."""
        self._save()
        self.outlet.roll()
        if self._log is not None:
            self._log.close()
