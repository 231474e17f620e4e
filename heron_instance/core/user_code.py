"""Where user code runs, and who may touch the core meanwhile.

The thread that drives a task's executor holds the task's lock, except while it waits for input and while user code
runs: ``with user_code("process"):`` gives the lock up for that long. So another thread may take it, when a call lasts,
and route and send what the call has emitted so far, and threads of the component's own may emit and ack while nothing
arrives. Heron split the instance into two threads for this very case (Heron paper, section 5.5: user code may block,
and nothing else may wait for it).

What user code calls (emit, ack) runs without the lock, so it may only append to lists or set bytes; whatever does more
takes the lock. User code may be entered again from within (an ``ack`` that ``poll`` delivers), hence a lock that its
owner may take twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NamedTuple, Protocol


class Call(NamedTuple):
    """A call of user code that lasts: which method, and since when."""

    method: str
    since_ms: float


class Lock(AbstractContextManager[Any], Protocol):
    """A lock that its owner may take twice, as ``threading.RLock``."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take it; False if it is not ``blocking`` and another thread has it."""

    def release(self) -> None:
        """Let it go, once."""


class NoLock(AbstractContextManager[None]):
    """Where there is but one thread."""

    def acquire(self, blocking: bool = True) -> bool:
        """At once."""
        return True

    def release(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


class UserCode:
    """Of one task. ``clock`` gives seconds; the thread that drives the executor holds ``lock`` from the beginning."""

    def __init__(self, clock: Callable[[], float], lock: Lock, wake: Callable[[], None] | None = None) -> None:
        self.call: Call | None = None  # None: no user code runs
        self.lock = lock
        self._clock = clock
        self._wake = wake

    def wake_if_idle(self) -> None:
        """Have the executor run if no user code does: another thread has emitted, acked or failed. The caller holds the
        lock, so a call under way ends later and its executor sees to it then."""
        if self.call is None and self._wake is not None:
            self._wake()

    def __call__(self, method: str) -> _Running:
        """A context for a call of this method."""
        return _Running(self, Call(method, self._clock() * 1000))


class _Running:
    """User code runs within this context; the lock is free."""

    __slots__ = ("_before", "_call", "_user_code")

    def __init__(self, user_code: UserCode, call: Call) -> None:
        self._user_code = user_code
        self._call = call
        self._before = user_code.call

    def __enter__(self) -> None:
        self._user_code.call = self._before or self._call  # a call from within belongs to the one it came from
        self._user_code.lock.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._user_code.lock.acquire()
        self._user_code.call = self._before
