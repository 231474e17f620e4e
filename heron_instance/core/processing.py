"""Calls of a bolt's user code: ``process`` for some tuples of a batch, or ``process_batch`` for all of it.

An exception of user code fails the current tuple, or the open tuples of the batch, and goes no further. User code runs
without the executor's lock (``user_code.py``). ``BatchCursor`` is the batch in progress and its position. Tuples are
made on demand, and the iterator over the rows knows how many are left, so no separate counter is kept.

With dead letters, ``DeadLetterProcessor`` runs each call on an undo log: changes of ``self.keyed`` and ``self.state``
are recorded, and emits are deferred. When the call returns, both are applied. When it raises, or fails its tuple, both
are undone, and a ``heronry.DeadLetter`` is sent on the declared stream instead. Other changes by ``process``
(attributes, external systems) are not undone.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import length_hint
from typing import Any

from heron_instance.core.bolt_collector import UNANCHORED, BoltCollector
from heron_instance.core.collector import CannotDefer, DeferredEmits
from heron_instance.core.input_batch import ACKED, OPEN, InputBatch
from heron_instance.core.task import TaskRuntime
from heron_runtime.model.dataflow import MAX_REASON_TEXT
from heronry.api.dead_letters import DeadLetter, dead_letter_stream
from heronry.api.tuples import Tuple, TupleBatch


class BatchCursor:
    """Batch in progress: ``rows`` are its values, ``tuples`` yields the next ones."""

    def __init__(self, batch: InputBatch, rows: list[tuple[Any, ...]]) -> None:
        self.batch = batch
        self.rows = rows
        self.count = len(rows)
        self.acked = 0  # a bolt that does not ack itself: the tuples before this one are settled
        self._rows = iter(rows)
        self.tuples = map(Tuple, self._rows, range(self.count), [batch] * self.count)

    def position(self) -> int:
        """Return the index of the next tuple."""
        return self.count - length_hint(self._rows)

    def skip_all(self) -> None:
        """Skip all tuples, since the batch is processed as a whole."""
        deque(self._rows, 0)


class DeadLetterProcessor:
    """Calls ``process`` of one bolt task that declares dead letters."""

    def __init__(self, task: TaskRuntime, collector: BoltCollector, stream: str) -> None:
        self._task = task
        self._collector = collector
        self._state = task.state
        self._stream = stream
        collector.may_defer = True
        task.counts.count("__dead-letter-count", 0)

    def process(self, work: BatchCursor, limit: int) -> None:
        """Process at most ``limit`` of the remaining tuples, one by one."""
        task, collector, process = self._task, self._collector, self._task.component.process
        hooks, clock = task.hooks, task.clock
        for tup in islice(work.tuples, limit):
            began, error = clock() if hooks else 0.0, None
            call = collector.deferred = DeferredEmits()
            collector.index = tup.index
            self._state.begin()
            try:
                with task.user_code("process"):
                    process(tup)
            except Exception as raised:
                error = raised
            except BaseException:  # an emit has ended the executor
                self._undo(call)
                raise
            finally:
                collector.deferred, collector.index = None, UNANCHORED
            if error is None and not call.failed:
                self._state.keep()
                call.release(collector.route_siblings)
            else:
                self._undo(call)
                self._send_dead_letter(tup, error, call)
            if hooks:
                hooks.bolt_execute(tup, 1000 * (clock() - began))
            if task.errors.failed is not None:
                return

    def _undo(self, call: DeferredEmits) -> None:
        self._state.undo()
        call.forget()

    def _send_dead_letter(self, tup: Tuple, error: Exception | None, call: DeferredEmits) -> None:
        """Send the dead letter. A mistake that every record would make fails the task instead."""
        task, collector = self._task, self._collector
        if isinstance(error, CannotDefer):
            task.errors.record_exception(error, "process")
            return
        cause = call.reason if error is None else error
        text, traceback = task.errors.record_dead_letter(cause)
        letter = DeadLetter(task.name, task.id, tup.component, tup.stream, tup.values, text, traceback)
        try:
            collector.emit_row(tuple(self._sendable(letter)), None, self._stream)
        except Exception as refused:  # a key without a hash, or a custom grouping that raises
            task.errors.record_exception(refused, "dead_letters")
            return
        if tup.batch.state[tup.index] == OPEN:
            collector.ack(tup)

    def _sendable(self, letter: DeadLetter) -> DeadLetter:
        """Return the letter, without its values if with them it exceeds the maximum size of a tuple."""
        codec = self._task.codec
        pickled = codec.pickled_batches
        (encoded,) = codec.encode_cut([tuple(letter)])
        codec.pickled_batches = pickled  # only batches that are sent count
        if not encoded.refused:
            return letter
        why = f"{letter.error} (values left out: {encoded.refused})"
        return letter._replace(values=(), error=why[:MAX_REASON_TEXT])


class BatchProcessor:
    """Calls user code of one bolt task. ``batchwise``: the bolt takes whole batches."""

    def __init__(self, task: TaskRuntime, collector: BoltCollector) -> None:
        self._task = task
        self._collector = collector
        self._bolt = task.component
        self._auto_ack = bool(getattr(task.component, "auto_ack", False))
        self.batchwise = hasattr(task.component, "process_batch")
        letters = dead_letter_stream(type(task.component)) if task.keeps_state else None
        self._dead_letters = DeadLetterProcessor(task, collector, letters) if letters else None

    def process(self, work: BatchCursor, limit: int) -> None:
        """Process at most ``limit`` of the remaining tuples, or the whole batch."""
        if self.batchwise:
            self._process_batch(work)
        elif self._dead_letters is not None:
            self._dead_letters.process(work, limit)
        elif self._task.hooks:
            self._process_hooked(work, limit)
        elif self._collector.auto_anchor and self._collector.streams:
            self._process_anchored(work, limit)
        else:
            self._process_mapped(work, limit)

    def first_open(self, work: BatchCursor) -> int:
        """Return the index of the first tuple that may be unfinished, even after an interrupted call."""
        return 0 if self.batchwise else max(0, work.position() - 1)

    def settle_done(self, work: BatchCursor) -> None:
        """Ack the tuples before the current one within a call. Hooks are called by their own thread only."""
        if not self._task.hooks:
            self.settle(work, self.first_open(work))

    def settle(self, work: BatchCursor, stop: int) -> None:
        """Ack the open tuples before ``stop``, for a bolt that does not ack itself."""
        if not self._auto_ack:
            return
        start, work.acked = work.acked, max(work.acked, stop)
        acked = work.batch.settle_rest(start, work.acked, ACKED)
        if self._task.hooks:
            for index in acked:
                self._task.hooks.bolt_ack(Tuple((), index, work.batch))

    def _process_mapped(self, work: BatchCursor, limit: int) -> None:
        """Call ``process`` for each of the next tuples.

        A plain loop: ``map`` would take a StopIteration of user code for the end of the batch, and is not faster.
        """
        process = self._bolt.process
        try:
            with self._task.user_code("process"):
                for tup in islice(work.tuples, limit):
                    process(tup)
        except Exception as error:
            self._tuple_raised(work, error)

    def _process_anchored(self, work: BatchCursor, limit: int) -> None:
        """Call ``process`` for a BasicBolt that emits: the collector must know the current tuple."""
        process, collector = self._bolt.process, self._collector
        try:
            with self._task.user_code("process"):
                # The loop variable is an attribute of the collector: one store instead of two.
                for collector.index, tup in enumerate(islice(work.tuples, limit), work.position()):
                    process(tup)
        except Exception as error:
            self._tuple_raised(work, error)
        finally:
            collector.index = UNANCHORED

    def _process_hooked(self, work: BatchCursor, limit: int) -> None:
        """Call ``process`` and the hooks for each tuple."""
        clock, process = self._task.clock, self._bolt.process
        for tup in islice(work.tuples, limit):
            self._collector.index = tup.index if self._collector.auto_anchor else UNANCHORED
            began = clock()
            try:
                with self._task.user_code("process"):
                    process(tup)
            except Exception as error:
                self._tuple_raised(work, error)
            self._collector.index = UNANCHORED
            self._task.hooks.bolt_execute(tup, 1000 * (clock() - began))
            if self._task.errors.failed is not None:
                return

    def _tuple_raised(self, work: BatchCursor, error: Exception) -> None:
        index = work.position() - 1
        text = self._task.errors.record_exception(error, "process")
        self._collector.fail_indices(work.batch, [index], error, text)

    def _process_batch(self, work: BatchCursor) -> None:
        work.skip_all()
        tuples = TupleBatch(work.batch, work.rows)
        try:
            with self._task.user_code("process_batch"):
                self._bolt.process_batch(tuples)
        except Exception as error:
            text = self._task.errors.record_exception(error, "process_batch")
            self._collector.fail_indices(work.batch, list(range(work.count)), error, text)
