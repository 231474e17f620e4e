"""What happens when user code raises: it is logged and counted, and restarts the instance if that is the policy.

A value that cannot be sent is found after user code has returned: it is an exception, too, but restarts nothing, unless
the state of tasks is kept: then every record that fails has all tasks go back to the last checkpoint.
"""

from __future__ import annotations

import logging
import traceback as tracebacks
from collections.abc import Callable

from heron_instance.core.telemetry import Counts, TelemetrySink
from heron_runtime.model.dataflow import MAX_REASON_TEXT

log = logging.getLogger(__name__)

LETTERS_LOGGED_SECS = 10.0  # records that fail may be many: the log has one of them in that time, and how many


class UserCodeFailed(Exception):
    """User code raised and the policy is to restart the instance. What was to be sent must still be sent, where tuples
    are acked."""


class UserErrors:
    """Of one task. ``policy`` is fail or restart, ``wall`` gives seconds since 1970."""

    def __init__(
        self, name: str, policy: str, counts: Counts, telemetry: TelemetrySink, wall: Callable[[], float]
    ) -> None:
        self.failed: UserCodeFailed | None = None  # once user code has raised under the policy ``restart``
        self._name = name
        self._policy = policy
        self._counts = counts
        self._telemetry = telemetry
        self._wall = wall
        self.strict = False  # no record may fail
        self._letters = 0  # since one was logged
        self._letter_logged: float | None = None
        counts.count("__exception-count", 0)

    def raised(self, error: BaseException, where: str) -> str:
        """User code raised in ``where``. Returns the traceback."""
        text = "".join(tracebacks.format_exception(error))
        message = _text(error)
        log.error("%s.%s raised %s: %s", self._name, where, type(error).__name__, message, exc_info=error)
        self._counts.count("__exception-count", 1)
        self._telemetry.exception(type(error).__name__, message, text, self._wall())
        if self._policy == "restart" or self.strict:
            self.record_failed(f"{self._name}.{where} raised {type(error).__name__}: {message}")
        return text

    def put_aside(self, cause: object) -> tuple[str, str]:
        """A record has become a dead letter, for an exception or a reason that user code gave. Returns class and
        message, and the traceback, both of at most ``MAX_REASON_TEXT`` characters that any encoding can hold."""
        kind = type(cause).__name__ if isinstance(cause, BaseException) else "failed"
        line = _sendable(f"{kind}: {_text(cause)}")[:MAX_REASON_TEXT]
        trace = "".join(tracebacks.format_exception(cause)) if isinstance(cause, BaseException) else ""
        trace = _sendable(trace)[-MAX_REASON_TEXT:]
        now = self._wall()
        self._counts.count("__dead-letter-count", 1)
        self._telemetry.exception(kind, line.partition(": ")[2], trace, now)
        self._letters += 1
        if self._letter_logged is None or not 0 <= now - self._letter_logged < LETTERS_LOGGED_SECS:
            log.warning(
                "%s: dead letters since last told: %d, the newest for %s\n%s", self._name, self._letters, line, trace
            )
            self._letters, self._letter_logged = 0, now
        return line, trace

    def record_failed(self, why: str) -> None:
        """The task cannot go on; the first reason counts."""
        if self.failed is None:
            self.failed = UserCodeFailed(why)

    def refused(self, stream: str, reason: str, tuples: int) -> None:
        """So many tuples that user code emitted cannot be sent, for this reason (``Class: message``, or a sentence)."""
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
    except Exception as error:  # user code's own __str__
        return f"(no text: __str__ raised {type(error).__name__})"


def _sendable(text: str) -> str:
    """The same with lone surrogates written out."""
    return text.encode("utf-8", "backslashreplace").decode()
