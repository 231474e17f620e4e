"""Where state is kept only the thread that drives a task may emit: what another one emits belongs to no checkpoint.

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

from heron_instance.core.streams import OutputStream
from heron_runtime.failures import Failure


class Threads(Protocol):
    """The threads of this process; every one may ask."""

    def current(self) -> int:
        """A number for the one that asks."""

    def name(self) -> str:
        """Its name."""

    def count(self) -> int:
        """How many there are."""


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
