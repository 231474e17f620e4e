"""A reducer's results on their way out: through the steps behind it, into sinks, to other processes, until it is safe.

Results are kept by name, a window's start or a key, from the moment they are due until they are *done*: in the files of
the sinks that run here and, if they leave the process, confirmed by a pulse (pulses.py). A window's state stays in the
log as long. So whatever dies, and whenever: a result that may be lost is emitted again, by this process or, from its
log, by the next one. While some are not done, marks of event time are held back before them, and the end is not told.

A step behind the reducer that raises does not lose the result either: it comes again, and at last is sifted
(dead_letters.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from heronry.api.component import Bolt
from heronry.api.tuples import Tuple
from heronry.streamlet.combine import emitted
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Chain
from heronry.streamlet.online.dead_letters import RECORD_FAILURES, DeadLetters
from heronry.streamlet.online.offsets import pause_seconds
from heronry.streamlet.online.outlet import Outlet
from heronry.streamlet.online.pulses import HOLD_SECONDS, Held, Outbox, Pulse
from heronry.streamlet.online.state import Entry
from heronry.streamlet.program import LATE, ReduceStep, Ref

Named = dict[Hashable, Held]


class Results:
    """Of one task. ``source``: whose pulses confirm results; None if none leaves the process."""

    def __init__(
        self,
        bolt: Bolt,
        task: int,
        step: ReduceStep,
        chain: Chain,
        outlet: Outlet,
        dead_letters: DeadLetters,
        source: str | None,
    ) -> None:
        self._bolt, self._task, self._step = bolt, task, step
        self._chain, self._outlet, self._dead_letters = chain, outlet, dead_letters
        self._source = source
        self._length_ms = step.windowing.window.length_ms if step.windowing else None
        self.outbox = Outbox()
        self._pulse: Tuple | None = None
        self._pulse_at = 0.0
        self._retry_at = 0.0
        self._emitted: set[Hashable] = set()  # without pulses: what is done when the sinks are rolled
        self._done: list[Hashable] = []

    def put(self, name: Hashable, value: Any) -> None:
        """A window's entries, or a key's entry, are to go out."""
        self.outbox.put(name, value)

    # Out.

    def flush(self, now: float) -> None:
        """Emit what waits, if it may go out now: a window by itself, running results together."""
        if not self.outbox.waits() or now < self._retry_at or (self._source is not None and self._pulse is None):
            return
        taken = self.outbox.take()
        parts = [taken] if self._length_ms is None else [{name: held} for name, held in taken.items()]
        for part in parts:
            try:
                self._deliver(part)
            except RECORD_FAILURES as error:
                tries = max(held.tries for held in part.values())
                self._retry_at = now + pause_seconds(tries + 1)
                self._bolt.log.warning("results of step %r come again: %s", self._step.name, error)
                self.outbox.again(part)
                continue
            if self._source is not None:
                self.outbox.sent(part)
            elif self._length_ms is not None:
                self._emitted.update(part)

    def _deliver(self, part: Named) -> None:
        values = [held.value for held in part.values()]
        entries = values if self._length_ms is None else [entry for value in values for entry in value]
        tries = max(held.tries for held in part.values())
        anchor = None if self._pulse is None else [self._pulse]
        self._run(0, entries, anchor, tries, self._dead_letters.is_last(tries))

    def late(self, rows: list[Any], anchors: list[Tuple]) -> None:
        """Rows for closed windows: a stream of their own, anchored to the rows."""
        self._run(LATE, [Entry(start, key, acc) for key, start, acc in rows], anchors, 0, True)

    def _run(self, output: int, entries: list[Entry], anchor: list[Tuple] | None, tries: int, sift: bool) -> None:
        results = self._finished(entries)
        if not results:
            return
        channel = (self._task, self._task)
        ref = Ref(self._step.name, output)

        def run(block: Block) -> None:
            self._outlet.arrived(channel, None)  # marks tell the time: results may come again, behind later ones
            self._outlet.deliver(self._chain.run(ref, block), channel, self._task, anchor, tries, sift)

        block = Block(results, None if self._length_ms is None else [result.end - 1 for result in results])
        if sift:
            self._dead_letters.sift(block, run)
        else:
            run(block)

    def _finished(self, entries: Iterable[Entry]) -> list[Any]:
        results: list[Any] = []
        finish = self._step.monoid.finish
        for start, key, acc in entries:
            try:
                value = finish(acc)
            except Exception as error:
                failed = StepFailed(self._step.name, key)
                failed.__cause__ = error
                self._dead_letters.put([key, start], failed)
                continue
            results.append(emitted(self._step, key, start, value))
        return results

    # Confirmed.

    def on_pulse(self, tup: Tuple, now: float) -> bool:
        """Hold it if it is news, and let go of the one before. True if it is."""
        self._outlet.pulse(tup)
        pulse = Pulse(*tup.values)
        if pulse.source != self._source or not self.outbox.accepts(pulse, self._pulse is not None):
            self._bolt.ack(tup)
            return False
        confirmed = self.outbox.on_pulse(pulse)
        if self._length_ms is not None:
            self._done += confirmed
        self.release()
        self._pulse, self._pulse_at = tup, now
        return True

    def release(self) -> None:
        """Let the pulse go: it is acked when what the sinks here have is in place."""
        held, self._pulse = self._pulse, None
        if held is not None:
            self._outlet.settle(held)

    def tick(self, now: float) -> None:
        """No pulse is held for long."""
        if self._pulse is not None and now - self._pulse_at >= HOLD_SECONDS:
            self.release()

    def done(self) -> list[Any]:
        """The windows that are safe since the last call."""
        if self._outlet.sinks.clean and self._emitted:
            self._done += self._emitted
            self._emitted = set()
        done, self._done = self._done, []
        return done

    @property
    def all_told(self) -> bool:
        """Nothing waits, and nothing that has left the process is unconfirmed."""
        return not len(self.outbox)

    def least_end_ms(self) -> int | None:
        """The earliest end of a window that may still come (again)."""
        starts = [start for start in self.outbox.held() if isinstance(start, int)] if self._length_ms else []
        return min(starts) + (self._length_ms or 0) if starts else None

    def kept(self) -> list[Entry]:
        """The entries of windows that are not done."""
        return [entry for entries in self.outbox.held().values() for entry in entries] if self._length_ms else []
