"""``process`` for a bolt with dead letters: a record that it raises on takes nothing with it, and nobody restores.

Each call runs on an undo log: changes of ``self.keyed`` and ``self.state`` are remembered, emits are held
(``held_call.py``). When the call returns both stay; when it raises, or fails its tuple, both are as if the record had
never come, and a ``heronry.DeadLetter`` goes out on the declared stream in its place. What else ``process`` has changed
(attributes, other systems) stays changed.
"""

from __future__ import annotations

from itertools import islice

from heron_instance.core.bolt_collector import UNANCHORED, BoltCollector
from heron_instance.core.held_call import CannotHold, HeldCall
from heron_instance.core.input_batch import OPEN
from heron_instance.core.task import Task
from heron_instance.core.work import Work
from heron_runtime.model.dataflow import MAX_REASON_TEXT
from heronry.api.dead_letters import DeadLetter, stream_of
from heronry.api.tuples import Tuple


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
