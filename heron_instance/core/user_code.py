"""Calls of user code: the lock, exceptions, and task hooks.

The thread that drives a task's executor holds the task's lock, except while it waits for input and while user code
runs: ``with user_code("process"):`` releases the lock for that time. So another thread may take it when a call is long,
and route and send the rows emitted so far; and threads of the component may emit and ack while nothing arrives. Heron
split the instance into two threads for this case (Heron paper, section 5.5: user code may block, and nothing else may
wait for it).

Functions called by user code (emit, ack) run without the lock, so they may only append to lists or set bytes;
everything that does more takes the lock. User code may be entered again from within (an ``ack`` delivered by ``poll``),
hence a reentrant lock.

An exception of user code is logged and counted, and restarts the instance if that is the policy. A value that cannot be
sent is found after user code has returned. It counts as an exception but restarts nothing, except with checkpoints:
there every failed record returns all tasks to the last checkpoint.

An exception of a task hook is logged and counted, and goes no further.
"""

from __future__ import annotations

import logging
import traceback as tracebacks
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, NamedTuple, Protocol

from heron_instance.core.task_metrics import CounterBuffer, TelemetrySink
from heron_runtime.failures import encodable
from heron_runtime.model.dataflow import MAX_REASON_TEXT, FailReason
from heronry.api.context import TopologyContext
from heronry.api.hooks import BoltAckInfo, BoltExecuteInfo, BoltFailInfo, EmitInfo, SpoutAckInfo, SpoutFailInfo
from heronry.api.tuples import Tuple

log = logging.getLogger(__name__)
LETTER_LOG_SECONDS = 10.0  # failed records may be many: log one of them, and their number, in this time


class Call(NamedTuple):
    """A call of user code in progress: its method and when it began."""

    method: str
    since_ms: float


class Lock(AbstractContextManager[Any], Protocol):
    """Reentrant lock, as ``threading.RLock``."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock. Return False if it is not ``blocking`` and another thread has it."""

    def release(self) -> None:
        """Release the lock once."""


class NoLock(AbstractContextManager[None]):
    """Lock for a single thread."""

    def acquire(self, blocking: bool = True) -> bool:
        """Return True at once."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


class UserCode:
    """Context of the user code of one task.

    Args:
        clock: Returns seconds.
        lock: Held by the thread that drives the executor, from the beginning.
        wake: Makes the executor run.
    """

    def __init__(self, clock: Callable[[], float], lock: Lock, wake: Callable[[], None] | None = None) -> None:
        self.call: Call | None = None  # None: no user code runs
        self.lock = lock
        self._clock = clock
        self._wake = wake

    def wake_if_idle(self) -> None:
        """Make the executor run if no user code does, since another thread has emitted, acked or failed.

        The caller holds the lock, so a call in progress ends later and its executor handles the change then.
        """
        if self.call is None and self._wake is not None:
            self._wake()

    def __call__(self, method: str) -> _Running:
        """Return a context for a call of this method."""
        return _Running(self, Call(method, self._clock() * 1000))


class _Running:
    """Context in which user code runs and the lock is free."""

    __slots__ = ("_before", "_call", "_user_code")

    def __init__(self, user_code: UserCode, call: Call) -> None:
        self._user_code = user_code
        self._call = call
        self._before = user_code.call

    def __enter__(self) -> None:
        self._user_code.call = self._before or self._call  # a nested call belongs to the outer one
        self._user_code.lock.release()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._user_code.lock.acquire()
        self._user_code.call = self._before


class ThreadInspector(Protocol):
    """Threads of this process; any thread may call it."""

    def current(self) -> int:
        """Return a number for the calling thread."""

    def name(self) -> str:
        """Return the name of the calling thread."""

    def count(self) -> int:
        """Return the number of threads."""


class UserCodeFailed(Exception):
    """User code raised and the instance must restart. With acks, the remaining flushes must still be sent."""


class UserErrors:
    """Errors of one task. ``wall`` gives seconds since 1970.

    ``policy`` is ``fail`` or ``restart``. A ``strict`` task restarts under either policy, since no record may fail.
    """

    def __init__(
        self, name: str, policy: str, counts: CounterBuffer, telemetry: TelemetrySink, wall: Callable[[], float],
        *, strict: bool = False,
    ) -> None:  # fmt: skip
        self.failed: UserCodeFailed | None = None  # once user code has raised under the policy ``restart``
        self._name = name
        self._policy = policy
        self._counts = counts
        self._telemetry = telemetry
        self._wall = wall
        self.strict = strict
        self._letters = 0  # since the last log message
        self._letter_logged: float | None = None
        counts.count("__exception-count", 0)

    def record_exception(self, error: BaseException, where: str) -> str:
        """Record an exception that user code raised in the method ``where``. Return the traceback."""
        text = encodable("".join(tracebacks.format_exception(error)))
        message = encodable(_text(error))
        log.error("%s.%s raised %s: %s\n%s", self._name, where, type(error).__name__, message, text.rstrip("\n"))
        self._counts.count("__exception-count", 1)
        self._telemetry.exception(type(error).__name__, message, text, self._wall())
        if self._policy == "restart" or self.strict:
            self.record_failed(f"{self._name}.{where} raised {type(error).__name__}: {message}")
        return text

    def record_dead_letter(self, cause: object) -> tuple[str, str]:
        """Record that a record has become a dead letter, for an exception or a reason given by user code.

        Returns:
            Class and message, and the traceback, both of at most ``MAX_REASON_TEXT`` encodable characters.
        """
        kind = type(cause).__name__ if isinstance(cause, BaseException) else "failed"
        line = encodable(f"{kind}: {_text(cause)}")[:MAX_REASON_TEXT]
        trace = "".join(tracebacks.format_exception(cause)) if isinstance(cause, BaseException) else ""
        trace = encodable(trace)[-MAX_REASON_TEXT:]
        now = self._wall()
        self._counts.count("__dead-letter-count", 1)
        self._telemetry.exception(kind, line.partition(": ")[2], trace, now)
        self._letters += 1
        if self._letter_logged is None or not 0 <= now - self._letter_logged < LETTER_LOG_SECONDS:
            log.warning(
                "%s: dead letters since the last log line: %d, the newest: %s\n%s",
                self._name,
                self._letters,
                line,
                trace,
            )
            self._letters, self._letter_logged = 0, now
        return line, trace

    def record_failed(self, why: str) -> None:
        """Mark the task as failed. The first reason is kept."""
        if self.failed is None:
            self.failed = UserCodeFailed(why)

    def record_refused(self, stream: str, reason: str, tuples: int) -> None:
        """Record ``tuples`` emitted tuples that cannot be sent, for this reason (``Class: message``, or a sentence)."""
        kind, colon, message = reason.partition(": ")
        if not colon or not kind.isidentifier():
            kind, message = "ValuesError", reason
        text = f"a tuple of stream {stream!r} of {self._name!r} cannot be sent: {message}"
        log.error("%s (%d tuples)", text, tuples)
        self._counts.count("__exception-count", tuples)
        self._counts.count("__refused-tuple-count", tuples)
        self._telemetry.exception(kind, text, "", self._wall(), tuples)
        if self.strict:
            self.record_failed(text)


def _text(cause: object) -> str:
    try:
        return "" if cause is None else str(cause)
    except Exception as error:  # __str__ of user code
        return f"(no text: __str__ raised {type(error).__name__})"


class Hooks:
    """Task hooks of one task; False if there are none. ``clock`` gives seconds."""

    def __init__(
        self, context: TopologyContext, task: int, count: Callable[[str, float], None], clock: Callable[[], float]
    ) -> None:
        self._hooks = context.hooks
        self._task = task
        self._count = count
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def spout_emits(self, row: tuple[Any, ...], tup_id: Any, stream: str, direct_task: int | None) -> bool:
        """Call the hooks for an emit of a spout. A row filter that lets every row pass."""
        self._tell("emit", EmitInfo(row, stream, self._task, tup_id, direct_task))
        return True

    def bolt_emits(self, row: tuple[Any, ...], anchors: Any, stream: str, direct_task: int | None) -> bool:
        """Call the hooks for an emit of a bolt. A row filter that lets every row pass."""
        self._tell("emit", EmitInfo(row, stream, self._task, None, direct_task))
        return True

    def spout_ack(self, tup_id: Any, age_ms: float) -> None:
        """Call the hooks for a completed tuple tree."""
        self._tell("spout_ack", SpoutAckInfo(tup_id, self._task, age_ms))

    def spout_fail(self, tup_id: Any, age_ms: float, reason: FailReason) -> None:
        """Call the hooks for a failed tuple tree."""
        self._tell("spout_fail", SpoutFailInfo(tup_id, self._task, age_ms, reason))

    def bolt_execute(self, tup: Tuple, took_ms: float) -> None:
        """Call the hooks for a tuple processed by a bolt."""
        self._tell("bolt_execute", BoltExecuteInfo(tup, self._task, took_ms))

    def bolt_ack(self, tup: Tuple) -> None:
        """Call the hooks for a tuple acked by a bolt."""
        self._tell("bolt_ack", BoltAckInfo(tup, self._task, self._age_ms(tup)))

    def bolt_fail(self, tup: Tuple) -> None:
        """Call the hooks for a tuple failed by a bolt."""
        self._tell("bolt_fail", BoltFailInfo(tup, self._task, self._age_ms(tup)))

    def clean_up(self) -> None:
        """Call the hooks after the component was closed."""
        for hook in self._hooks:
            try:
                hook.clean_up()
            except Exception:
                log.exception("task hook %s.clean_up raised", type(hook).__name__)

    def _tell(self, method: str, info: Any) -> None:
        for hook in self._hooks:
            try:
                getattr(hook, method)(info)
            except Exception:
                log.exception("task hook %s.%s raised", type(hook).__name__, method)
                self._count("__hook-exception-count", 1)

    def _age_ms(self, tup: Tuple) -> float:
        """Return the time since the tuple arrived; 0 for a tick."""
        arrived: float | None = getattr(tup.batch, "arrived_ms", None)
        return 0.0 if arrived is None else self._clock() * 1000 - arrived
