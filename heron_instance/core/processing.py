"""How a bolt's user code gets its tuples: ``process`` over some of a batch, or ``process_batch`` with all of it.

What user code
raises fails the tuple in hand, or what is open of the batch, and goes no further. All of it runs with the executor's
lock given up (``user_code.py``).
"""

from __future__ import annotations

from itertools import islice

from heron_instance.core.bolt_collector import UNANCHORED, BoltCollector
from heron_instance.core.dead_letters import DeadLetters
from heron_instance.core.input_batch import ACKED
from heron_instance.core.task import Task
from heron_instance.core.work import Work
from heronry.api.tuples import Tuple, TupleBatch


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
