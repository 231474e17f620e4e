"""What holds for the emits of a single call of user code, however long it lasts.

Between calls the executor looks after everything: what arrived, what is due, whether more may be emitted. A call that
loops for ever (``for message in consumer: self.emit(...)``) never lets it. So an emit *looks* itself: the first one
behind a flush, which starts the clock of the next flush and has the shell watch it, and one each ``LOOK_ROWS``.

Within a short call that is all: what it emits beyond a bound is sent like anything else. In a call that has lasted
``LONG_CALL_MS`` a look does what the executor would do between two calls: it serves what arrived, routes, flushes what
is due, and while nothing more may be emitted it waits, so that the maximum of pending roots, pauses and the bound of
data-out hold within the call. Acks and fails are settled meanwhile, so the window opens again; telling user code about
them is left to ``poll`` or to the end of the call, unless too many gather.

``ack`` and ``fail`` have an allowance (``allowance.py``), since many calls follow each other and nobody looks in
between. What they emit beyond it is held; only a call that goes on emitting then, for long, waits like any other.

A call that emits nothing more cannot look. The shell's timer flushes for it, from another thread (``user_code.py``).

How much a spout may emit while it is told what became of its tuples.

``ack`` and ``fail`` may emit, and there may be thousands to be told of at a time. Before they are called the executor
says how many rows there is room for; from the emit that uses up the room no further ``ack`` or ``fail`` is begun. So
what they emit beyond a bound is what one call emits, as with ``next_tuple``.

An emit *looks* (``emit_gate.py``) when its stream holds so many rows that the room might be used up with it.

Where state is kept only the thread that drives a task may emit: what another one emits belongs to no checkpoint.

Asking on each emit which thread it runs on would make an emit a third slower, so that is asked when an emit looks
around anyway (``emit_gate.py``): the first behind each flush, and one in a thousand. An emit while no user code runs is
therefore always noticed. One that joins what user code has just emitted is noticed as soon as threads are there that
were not when the task began, which is looked at between two calls of user code: from then on every emit looks. What
remains is a thread that emits within the call that has started it, which is as if the call had emitted, and threads
that Python does not know of (call-backs of C libraries) until one of their emits is the first behind a flush.

Who emits is told at once, by an exception in that thread; the task fails at its next step, for a thread may end in
silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heron_instance.core.collector import TaskCollector
from heron_instance.core.outbox import Flush
from heron_instance.core.output import Output
from heron_instance.core.output_streams import OutputStream
from heron_instance.core.user_code import Threads, UserCode
from heron_runtime.failures import Failure

LOOK_ROWS = 1024  # emits from one look to the next, at most
LONG_CALL_MS = 20.0  # a call this long is held; shorter ones may overshoot a bound by what they emit
LONGEST_WAIT_MS = 1000.0  # then the executor is asked again
TOLD_MS = 2000.0  # a call this long is told of by `heron status`
PLACE_TOLD_MS = 5000.0  # and by then also where it is


class Allowance:
    """Of one spout task. ``used_up``: begin no further call."""

    __slots__ = ("_collector", "_last", "lasts", "used_up")

    def __init__(self, collector: TaskCollector) -> None:
        self.lasts = False  # the spout is being told
        self.used_up = False
        self._collector = collector
        self._last = 0

    def begin(self, room: int) -> None:
        """The spout is about to be told; there is room for so many rows, perhaps for none."""
        self.lasts, self.used_up = True, False
        self._last = self._collector.emitted_ever() + room
        for out in self._collector.streams.values():
            out.look_at = 0

    def end(self) -> None:
        """The spout has been told."""
        self.lasts = False

    def look(self, out: OutputStream, rows: int) -> None:
        """So many rows are about to be added to ``out``."""
        left = self._last - self._collector.emitted_ever() - rows
        self.used_up = left <= 0
        # Each stream may use its share of what is left before somebody looks again: of what is left now, for what it
        # was given when more was left would come on top.
        share = max(0, (left - 1) // len(self._collector.streams))
        for each in self._collector.streams.values():
            each.look_at = len(each.rows) + share
        out.look_at += rows


class WrongThread(Failure):
    """A thread of the component's own has emitted."""


class OwnThread:
    """Of one executor; made on the thread that drives it. ``look``: what an emit that looks around does; ``wake`` has
    the executor run."""

    def __init__(
        self,
        name: str,
        threads: Threads,
        look: Callable[[OutputStream, int], bool | None],
        wake: Callable[[], None] | None,
    ) -> None:
        self.trespass: WrongThread | None = None  # the first one
        self.watchful = False  # every emit looks
        self._name = name
        self._threads = threads
        self._look = look
        self._wake = wake
        self._mine = threads.current()
        self._began_with = threads.count()
        self._look_at: dict[int, int] = {}  # while every emit looks: at how many rows one must, by stream

    def between_calls(self) -> None:
        """No user code runs, and this is the task's own thread."""
        watchful = self._threads.count() > self._began_with
        if watchful != self.watchful:
            self.watchful = watchful
            self._look_at.clear()

    def look(self, out: OutputStream, rows: int) -> None:
        """An emit of so many rows looks around. Raises WrongThread."""
        if self._threads.current() != self._mine:
            raise self._refused(out)
        if not self.watchful:
            self._look(out, rows)
        elif not out.rows or len(out.rows) + rows > self._look_at.get(out.number, 0):
            self._look(out, rows)
            self._look_at[out.number] = out.look_at
            out.look_at = 0

    def _refused(self, out: OutputStream) -> WrongThread:
        error = WrongThread(
            f"{out.where}: thread {self._threads.name()!r} has emitted, and where state is kept only the thread that "
            f"calls {self._name} may: what another one emits belongs to no checkpoint. Have it put records into a "
            "queue.SimpleQueue, and emit them in next_tuple (a spout), in process or process_tick (a bolt)"
        )
        if self.trespass is None:
            self.trespass = error
            if self._wake is not None:
                self._wake()
        return error


class Shell(Protocol):
    """What surrounds an executor and is needed while user code runs."""

    def watch(self) -> None:
        """Something waits for a flush since just now."""

    def post(self, flushes: list[Flush]) -> None:
        """Send these."""

    def serve(self, wait_ms: float) -> None:
        """Hand over what has arrived; if there is nothing, wait for it so long. Raises what ends the executor."""


class Held(Protocol):
    """The executor, as its gate sees it."""

    def serve_inside(self, now_ms: float) -> None:
        """Do what can be done about what arrived, user code apart."""

    def holds(self, now_ms: float) -> bool:
        """True while nothing may be emitted by the call that lasts."""

    def room(self) -> int:
        """How many rows may be emitted now."""

    def reopens_ms(self) -> float | None:
        """When that may be over although nothing arrives; None if never."""


class EmitGate:
    """Of one task. Without a shell (tests, simulation) nobody waits."""

    def __init__(
        self, held: Held, output: Output, collector: TaskCollector, user_code: UserCode, clock: Callable[[], float]
    ) -> None:
        self.shell: Shell | None = None
        self.closing = False  # nothing holds a close
        self.waits_since_ms: float | None = None  # an emit waits for room since then
        self.allowance = Allowance(collector)
        self._held = held
        self._output = output
        self._collector = collector
        self._user_code = user_code
        self._clock = clock
        self.interval_ms = output.interval_ms
        self.lock = user_code.lock
        collector.look = self.look

    def look(self, out: OutputStream, rows: int) -> bool:
        """Called by an emit of so many rows when ``out`` holds ``out.look_at`` rows with them or without; sets when it
        is to be called again. Returns True if the emit must take the lock: no user code runs, so it is of a thread of
        the component's own, and the executor waits or works."""
        now_ms = self._clock() * 1000
        shell, call = self.shell, self._user_code.call
        if call is None and shell is not None:
            return True
        if self.allowance.lasts and not self.allowance.used_up:
            self.allowance.look(out, rows)
        elif shell is None or call is None or self.closing or now_ms - call.since_ms < LONG_CALL_MS:
            out.look_at = len(out.rows) + LOOK_ROWS
        else:
            with self.lock:
                now_ms = self._pass(shell)
                out.look_at = max(1, min(LOOK_ROWS, self._held.room()))
        if self._output.waiting_since_ms is None:  # from now on: the caller emits at once
            self._output.waiting_since_ms = now_ms
            if shell is not None:
                shell.watch()
        return False

    def due_ms(self) -> float | None:
        """When what was emitted must be flushed; None while nothing waits."""
        since_ms = self._output.waiting_since_ms
        return None if since_ms is None else since_ms + self.interval_ms

    def lasts(self) -> bool:
        """True if a call of user code has outlasted the flush interval."""
        call = self._user_code.call
        return call is not None and self._clock() * 1000 - call.since_ms >= self.interval_ms

    def in_call_ms(self) -> float:
        """How long the call of user code under way has lasted; 0 if that is not worth telling."""
        call = self._user_code.call
        lasted_ms = 0.0 if call is None else self._clock() * 1000 - call.since_ms
        return lasted_ms if lasted_ms >= TOLD_MS else 0.0

    def doing(self, place: Callable[[], str]) -> str:
        """In words, for the heartbeat: which method of user code lasts, and where it is, which ``place`` tells."""
        call, lasted_ms, now_ms = self._user_code.call, self.in_call_ms(), self._clock() * 1000
        if call is None or not lasted_ms:
            return ""
        text = f"in {call.method} for {lasted_ms / 1000:.0f} s"
        waits_since_ms = self.waits_since_ms
        if waits_since_ms is not None and now_ms - waits_since_ms >= TOLD_MS:
            text += f", its emit has waited for room for {(now_ms - waits_since_ms) / 1000:.0f} s"
        where = place() if lasted_ms >= PLACE_TOLD_MS else ""
        return f"{text} ({where})" if where else text

    def poll(self) -> None:
        """User code lets the executor work for a moment; it waits for nothing."""
        if self.shell is not None and not self.closing:
            with self.lock:
                self.shell.serve(0.0)
                self._serve(self.shell)

    def _pass(self, shell: Shell) -> float:
        """Serve, and wait until more may be emitted; returns the time."""
        held = self._held
        shell.serve(0.0)
        while True:
            now_ms = self._serve(shell)
            if not held.holds(now_ms):
                self.waits_since_ms = None
                return now_ms
            if self.waits_since_ms is None:
                self.waits_since_ms = now_ms
            reopens_ms = held.reopens_ms()
            wait_ms = LONGEST_WAIT_MS if reopens_ms is None else reopens_ms - now_ms
            shell.serve(max(0.0, min(LONGEST_WAIT_MS, wait_ms)))

    def _serve(self, shell: Shell) -> float:
        """Route and send; returns the time."""
        self._collector.route_pending()
        now_ms = self._clock() * 1000
        self._held.serve_inside(now_ms)
        # Where nothing more may be emitted there is nothing to be gained by waiting for a fuller batch.
        flushes = self._output.take_due(now_ms, self._held.holds(now_ms), 0.0)
        if flushes:
            shell.post(flushes)
        return now_ms
