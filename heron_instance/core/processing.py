"""How a bolt's user code gets its tuples: ``process`` over some of a batch, or ``process_batch`` with all of it.

What user code
raises fails the tuple in hand, or what is open of the batch, and goes no further. All of it runs with the executor's
lock given up (``user_code.py``).

The batch a bolt has in hand, and how far it is.

Tuples are made as they are asked for, and the iterator over the rows knows how many are left: no counter of ours runs
along with user code.

``process`` for a bolt with dead letters: a record that it raises on takes nothing with it, and nobody restores.

Each call runs on an undo log: changes of ``self.keyed`` and ``self.state`` are remembered, emits are held
(``held_call.py``). When the call returns both stay; when it raises, or fails its tuple, both are as if the record had
never come, and a ``heronry.DeadLetter`` goes out on the declared stream in its place. What else ``process`` has changed
(attributes, other systems) stays changed.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from operator import length_hint
from typing import Any

from heron_instance.core.bolt_collector import UNANCHORED, BoltCollector
from heron_instance.core.collector import CannotHold, HeldCall
from heron_instance.core.input_batch import ACKED, OPEN, InputBatch
from heron_instance.core.task import Task
from heron_runtime.model.reasons import MAX_REASON_TEXT
from heronry.api.dead_letters import DeadLetter, stream_of
from heronry.api.tuples import Tuple, TupleBatch


class Work:
    """``rows`` are the values of the batch; ``tuples`` gives out the next ones."""

    def __init__(self, batch: InputBatch, rows: list[tuple[Any, ...]]) -> None:
        self.batch = batch
        self.rows = rows
        self.count = len(rows)
        self.acked = 0  # a bolt without acks of its own: the tuples before this one are settled
        self._left = iter(rows)
        self.tuples = map(Tuple, self._left, range(self.count), [batch] * self.count)

    def position(self) -> int:
        """The index of the next tuple."""
        return self.count - length_hint(self._left)

    def skip_all(self) -> None:
        """The batch is processed as a whole."""
        deque(self._left, 0)


class DeadLetters:
    """Of one bolt task."""

    def __init__(self, task: Task, collector: BoltCollector, stream: str) -> None:
        self._task = task
        self._collector = collector
        self._kept = task.kept
        self._stream = stream
        collector.may_hold = True
        task.counts.count("__dead-letter-count", 0)

    @classmethod
    def of(cls, task: Task, collector: BoltCollector) -> DeadLetters | None:
        """None where there are none."""
        stream = stream_of(type(task.component))
        return cls(task, collector, stream) if stream and task.stateful is not None else None

    def process(self, work: Work, limit: int) -> None:
        """At most ``limit`` of the tuples that are left, one by one."""
        task, collector, process = self._task, self._collector, self._task.component.process
        hooks, clock = task.hooks, task.clock
        for tup in islice(work.tuples, limit):
            began, error = clock() if hooks else 0.0, None
            call = collector.held_call = HeldCall()
            collector.index = tup.index
            self._kept.begin()
            try:
                with task.user_code("process"):
                    process(tup)
            except Exception as raised:
                error = raised
            except BaseException:  # the executor is to end, and an emit has told so
                self._undo(call)
                raise
            finally:
                collector.held_call, collector.index = None, UNANCHORED
            if error is None and not call.failed:
                self._kept.keep()
                call.release(collector.route_siblings)
            else:
                self._undo(call)
                self._put_aside(tup, error, call)
            if hooks:
                hooks.bolt_execute(tup, 1000 * (clock() - began))
            if task.errors.failed is not None:
                return

    def _undo(self, call: HeldCall) -> None:
        self._kept.undo()
        call.forget()

    def _put_aside(self, tup: Tuple, error: Exception | None, call: HeldCall) -> None:
        """Send the letter. A mistake that every record would make is none of the record's."""
        task, collector = self._task, self._collector
        if isinstance(error, CannotHold):
            task.errors.raised(error, "process")
            return
        cause = call.reason if error is None else error
        text, traceback = task.errors.put_aside(cause)
        letter = DeadLetter(task.name, task.id, tup.component, tup.stream, tup.values, text, traceback)
        try:
            collector.emit_row(tuple(self._sendable(letter)), None, self._stream)
        except Exception as refused:  # a key of the reader's grouping that has no hash, a custom grouping that raises
            task.errors.raised(refused, "dead_letters")
            return
        if tup.batch.state[tup.index] == OPEN:
            collector.ack(tup)

    def _sendable(self, letter: DeadLetter) -> DeadLetter:
        """The letter without its values, if with them it is larger than a tuple may be."""
        codec = self._task.codec
        pickled = codec.pickled_batches
        (encoded,) = codec.encode_cut([tuple(letter)])
        codec.pickled_batches = pickled  # what is counted are batches that are sent
        if not encoded.refused:
            return letter
        why = f"{letter.error} (its values cannot be sent along: {encoded.refused})"
        return letter._replace(values=(), error=why[:MAX_REASON_TEXT])


class Processing:
    """Of one bolt task. ``batchwise``: the bolt takes batches."""

    def __init__(self, task: Task, collector: BoltCollector) -> None:
        self._task = task
        self._collector = collector
        self._bolt = task.component
        self._auto_ack = bool(getattr(task.component, "auto_ack", False))
        self.batchwise = hasattr(task.component, "process_batch")
        self._dead_letters = DeadLetters.of(task, collector)

    def process(self, work: Work, limit: int) -> None:
        """At most ``limit`` of the tuples that are left, or the whole batch."""
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

    def first_open(self, work: Work) -> int:
        """Where the tuples begin that user code is not done with, although a call of it may have been broken off."""
        return 0 if self.batchwise else max(0, work.position() - 1)

    def settle_done(self, work: Work) -> None:
        """In the middle of a call: the tuples before the one in hand are done. Hooks are told by their own thread."""
        if not self._task.hooks:
            self.settle(work, self.first_open(work))

    def settle(self, work: Work, stop: int) -> None:
        """For a bolt without acks of its own: ack what is neither acked nor failed before ``stop``. For a whole batch
        that is one assignment."""
        if not self._auto_ack:
            return
        start, work.acked = work.acked, max(work.acked, stop)
        acked = work.batch.settle_rest(start, work.acked, ACKED)
        if self._task.hooks:
            for index in acked:
                self._task.hooks.bolt_ack(Tuple((), index, work.batch))

    def _process_mapped(self, work: Work, limit: int) -> None:
        """Call ``process`` with each of the next tuples. A plain loop: ``map`` would take a StopIteration of user code
        for the end of the batch, and is no faster."""
        process = self._bolt.process
        try:
            with self._task.user_code("process"):
                for tup in islice(work.tuples, limit):
                    process(tup)
        except Exception as error:
            self._tuple_raised(work, error)

    def _process_anchored(self, work: Work, limit: int) -> None:
        """The same for a BasicBolt that emits: the collector must know which tuple is in hand."""
        process, collector = self._bolt.process, self._collector
        try:
            with self._task.user_code("process"):
                # The loop variable is the collector's own: one store instead of two.
                for collector.index, tup in enumerate(islice(work.tuples, limit), work.position()):
                    process(tup)
        except Exception as error:
            self._tuple_raised(work, error)
        finally:
            collector.index = UNANCHORED

    def _process_hooked(self, work: Work, limit: int) -> None:
        """One by one, with the hooks."""
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

    def _tuple_raised(self, work: Work, error: Exception) -> None:
        index = work.position() - 1
        text = self._task.errors.raised(error, "process")
        self._collector.fail_indices(work.batch, [index], error, text)

    def _process_batch(self, work: Work) -> None:
        work.skip_all()
        tuples = TupleBatch(work.batch, work.rows)
        try:
            with self._task.user_code("process_batch"):
                self._bolt.process_batch(tuples)
        except Exception as error:
            text = self._task.errors.raised(error, "process_batch")
            self._collector.fail_indices(work.batch, list(range(work.count)), error, text)
