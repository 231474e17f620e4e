"""The reducer: rows of every chain, added up by key; and the record-wise steps behind it, fused.

Acks: a row is acked when its contribution is on disk (``state_log``), so a reducer that dies has lost nothing: it goes
on from its log, and what was not acked comes again. (It may come again although it was saved, if the process died
between the two: at least once.) State is written once a second, or less often if that takes long. With
``user.streamlet.durable: False`` state is in memory only and rows are acked at once.

Results are kept until they are safe wherever they go: see results.py. A window's entries stay in the log as long.
"""

from __future__ import annotations

import time
from typing import Any

from heronry.api.component import Bolt
from heronry.api.metrics import CountMetric
from heronry.api.tuples import Tuple, TupleBatch
from heronry.streamlet.endpoints import ViewSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.chain import Chain
from heronry.streamlet.online.dead_letters import DeadLetters
from heronry.streamlet.online.locate import STAGE, find
from heronry.streamlet.online.outlet import Outlet
from heronry.streamlet.online.results import Results
from heronry.streamlet.online.sinks import SinkSet
from heronry.streamlet.online.spill import SpillFiles
from heronry.streamlet.online.stages import stages_of, view_of
from heronry.streamlet.online.state import Entry, ReduceState, RowFailed, identity
from heronry.streamlet.online.state_log import StateLog
from heronry.streamlet.online.streams import MARKS, PULSES
from heronry.streamlet.online.task_files import state_folder
from heronry.streamlet.online.view_files import ViewFiles
from heronry.streamlet.online.watermark import FOREVER, Mark, Watermark
from heronry.streamlet.program import Program, ReduceStep, SinkStep

DURABLE = "user.streamlet.durable"
VIEW_KEYS = "user.streamlet.view.keys"
DEFAULT_VIEW_KEYS = 500_000  # accumulators of a view's buckets kept in memory, in each task
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
        stages = stages_of(program)
        stage = stages.stage(config[STAGE])
        step = program.by_name[stage.name]
        assert isinstance(step, ReduceStep)
        self.step, self.task = step, context.get_task_id()
        index = context.get_task_index()
        folder = state_folder(config)
        self._watermark = Watermark(t for name in stage.inputs for t in context.get_component_tasks(name))
        view = view_of(program, step)
        self._view = ViewFiles(view, step, index, stage.parallelism) if view else None
        if self._view is not None:
            self._tell_view(self._view)  # that it is not known (any more), until all sources have said so
        self._view_keys = int(config.get(VIEW_KEYS, DEFAULT_VIEW_KEYS))
        windowing = step.windowing
        bucketed = view is not None and windowing is None
        self._spill = SpillFiles(folder / "state" / f"{stage.name}-{index}-spilled", step.monoid) if bucketed else None
        self._shows = _is_read(program, step)
        self._state = ReduceState(
            step.monoid,
            windowing.window.length_ms if windowing else None,
            windowing.allowed_lateness_ms if windowing else 0,
            totals=bucketed and self._shows,
            load=self._spill.read if self._spill else None,
        )
        self.late_count = context.register_metric("late-count", CountMetric())
        self.unpublished_count = context.register_metric("unpublished-count", CountMetric())
        sinks = SinkSet(program, stage.steps, str(index), stage.parallelism, folder, self.clock)
        chain = Chain(program, stage.steps, self.log)
        self.outlet = Outlet(self, stages, stage, sinks, [(self.task, self.task)])
        self.letters = DeadLetters(self, config, context, stage.name, folder)
        source = stages.pulse_source(stage.name)
        self.results = Results(self, self.task, step, chain, self.outlet, self.letters, source)
        self._unsaved: list[tuple[TupleBatch, bool]] = []  # acks that wait for the log; True: and for the sinks
        self._saved_at = self._shown_at = self.clock()
        self._save_each = SAVE_SECONDS
        self._closed_saved_ms: int | None = None
        self._told_final = False
        self._unpublished: dict[int, list[Entry]] = {}  # buckets of the view that could not be written
        self._log: StateLog | None = None
        if config.get(DURABLE, True):
            self._restore(StateLog(folder / "state" / f"{stage.name}-{index}.log", step.monoid))

    def _restore(self, log: StateLog) -> None:
        """What this task knew before it died. Windows whose results nobody has confirmed go out again."""
        self._log = log
        saved = log.load()
        self._closed_saved_ms = saved.closed_ms
        for start, entries in self._state.restore(*saved):
            self._publish(start, entries)
            self.results.put(start, entries)

    # Input.

    def process_batch(self, tuples: TupleBatch) -> None:
        """Rows of chains, marks, or pulses."""
        if tuples.stream == MARKS:
            for tup in tuples:
                self._on_mark(tup)
            return
        if tuples.stream == PULSES:
            for tup in tuples:
                self._on_pulse(tup)
            return
        for task in set(tuples.origin.task_of_start):
            self._watermark.busy(task)
        late = self._add(tuples)
        if late:
            self.late_count.incr(len(late))
            self.results.late([tuples.rows[place] for place in late], [tuples[place] for place in late])
        if self._log is None and not late:
            self.ack_many(tuples)
        else:
            self._unsaved.append((tuples, bool(late)))

    def _add(self, tuples: TupleBatch) -> list[int]:
        """Add every row; returns the places of those that are late.

        A row that cannot be added is put aside at once: it would fail again, and its block be counted twice.
        """
        rows, late, begin = tuples.rows, [], 0
        while begin < len(rows):
            try:
                late += self._state.add_rows(rows, begin)
                break
            except RowFailed as failed:
                begin = failed.place + 1
                late += failed.late
                error = StepFailed(self.step.name, rows[failed.place][0])
                error.__cause__ = failed.__cause__
                self.letters.put(rows[failed.place], error)
        return late

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
        if self.step.windowing is not None and watermark_ms is not None and self._state.would_close(watermark_ms):
            # First, or the last rows of a window would be acked while neither the log nor a sink has them on disk.
            self._save()
            for start, entries in self._state.close(watermark_ms):
                self._publish(start, entries)
                self.results.put(start, entries)
            self._save()  # that they are closed: what comes for them is late, also after a death
            self.results.flush(self.clock())
        elif watermark_ms is not None:
            self._state.close(watermark_ms)
        if self._watermark.is_final:
            self._finish()
        else:
            self._tell(mark)

    def _on_pulse(self, tup: Tuple) -> None:
        now = self.clock()
        if not self.results.on_pulse(tup, now):
            return
        final = self._watermark.is_final
        if self.step.windowing is not None or final:
            self.results.flush(now)
        if not final:
            self._tell(Mark.TIME)
        elif not self._told_final:
            self._finish_if_told()

    def _tell(self, mark: Mark) -> None:
        """How far event time is, up to results that may come again."""
        windowing, closed_ms = self.step.windowing, self._state.closed_ms
        if windowing is not None and closed_ms is not None:
            least_ms = self.results.least_end_ms()
            time_ms = closed_ms if least_ms is None else min(closed_ms, least_ms - 1)
            if time_ms < FOREVER - windowing.allowed_lateness_ms:
                self._pass_on(Mark.TIME, time_ms)
        if mark is Mark.IDLE and self._watermark.is_idle and (windowing is None or self.results.all_told):
            self._pass_on(Mark.IDLE, 0)

    def _pass_on(self, mark: Mark, time_ms: int) -> None:
        channel = (self.task, self.task)
        self.outlet.mark(channel, mark, time_ms)
        self.outlet.forward(self.task, mark, time_ms)
        self.outlet.tell(again=mark is Mark.FINAL)

    def _finish(self) -> None:
        """Nothing will ever come: final results, and everything on disk."""
        self._save()
        self.results.flush(self.clock())
        self.outlet.roll()
        self._finish_if_told()

    def _finish_if_told(self) -> None:
        """The end is told when all results are where they belong."""
        self._told_final = self.results.all_told
        if self._told_final:
            self._pass_on(Mark.FINAL, 0)
            self.outlet.sinks.finish()
            self._save()

    # Results.

    def process_tick(self, tup: Tuple) -> None:
        """Save, show, roll, each when it is time."""
        now = self.clock()
        if now - self._saved_at >= self._save_each:
            self._save()
        if self.step.windowing is not None or self._watermark.is_final:
            self.results.flush(now)
        elif self.step.updates and now - self._shown_at >= UPDATE_SECONDS:
            self._shown_at = now
            self.results.flush(now)
        if self._watermark.is_final and not self._told_final:
            self._finish_if_told()
        if self.outlet.sinks.due():
            self.outlet.roll()
        self.results.tick(now)

    def _save(self) -> None:
        """Write what has changed, then ack what it came of."""
        began = self.clock()
        changed = self._state.take_changed()
        for start, entries in list(self._unpublished.items()):
            self._publish(start, self._state.entries(start) or entries)
        if self._view is not None:
            for start in {entry.start for entry in changed if entry.start is not None}:
                self._publish(start, self._state.entries(start))
            if not self._unpublished:
                self._tell_view(self._view)
        if self.step.windowing is None and self._shows:
            for entry in changed:
                if entry.start is None:
                    self.results.put(identity(entry.key), entry)
        spilled = self._spilled(self._spill) if self._spill is not None else []
        if self._log is not None:
            self._write(self._log, changed, spilled)
        waiting, self._unsaved = self._unsaved, []
        for tuples, late in waiting:
            if late:
                self.outlet.settle(tuples)
            else:
                self.ack_many(tuples)
        self._saved_at = self.clock()
        self._save_each = min(SAVE_LATEST_SECONDS, max(SAVE_SECONDS, SAVE_SHARE * (self._saved_at - began)))

    def _tell_view(self, view: ViewFiles) -> None:
        try:
            view.reached(self._watermark.value)
        except OSError as error:
            self.log.error("the view of step %r does not say how far it is: %s", self.step.name, error)

    def _spilled(self, files: SpillFiles) -> list[int]:
        """Keep the memory of a view bounded; returns the buckets that went."""
        gone = self._state.spill(self._view_keys, files.write)
        if gone and self._view is not None:
            for start in [s for s in self._state.spilled if s not in gone and self._view.is_gone(s)]:
                self._state.spilled.discard(start)
                files.remove(start)
        return gone

    def _publish(self, start: int, entries: list[Entry]) -> None:
        """Replace a bucket of the view. What cannot be published is said, and stops nothing else."""
        if self._view is not None:
            try:
                self._unpublished.pop(start, None)
                self._view.write(start, entries)
            except OSError as error:  # a full disk must not lose what is to be saved besides
                self._unpublished[start] = entries
                self.log.error("the view of step %r is not written, and tried again: %s", self.step.name, error)
            except (TypeError, OverflowError):
                self.log.exception(
                    "the view of step %r wants keys and accumulators that are plain data (None, bool, int, float, str, "
                    "bytes, list, dict): map keys to plain data, or leave the view out",
                    self.step.name,
                )
                self.unpublished_count.incr()

    def _write(self, log: StateLog, changed: list[Entry], spilled: list[int]) -> None:
        drops = self.results.done() if self.step.windowing is not None else []
        closed_ms = self._state.closed_ms
        if changed or drops or spilled or closed_ms != self._closed_saved_ms or log.owes():
            log.append(changed, drops, closed_ms, spilled)
            self._closed_saved_ms = closed_ms
            if log.wants_rewrite():
                log.rewrite([*self._state.all_entries(), *self.results.kept()], closed_ms, self._state.spilled)

    def close(self) -> None:
        """A clean stop."""
        self._save()
        self.outlet.roll()
        self.results.release()
        if self._log is not None:
            self._log.close()


def _is_read(program: Program, step: ReduceStep) -> bool:
    """True if anything but a view reads the results."""
    readers = program.readers(step.name, 0)
    return any(not (isinstance(r, SinkStep) and isinstance(r.sink, ViewSink)) for r in readers)
