"""What happens when user code raises: it is logged and counted, and restarts the instance if that is the policy.

A value that cannot be sent is found after user code has returned: it is an exception, too, but restarts nothing, unless
the state of tasks is kept: then every record that fails has all tasks go back to the last checkpoint.
"""

from __future__ import annotations

import logging
import traceback as tracebacks
from collections.abc import Callable

from heron_instance.core.telemetry import Counts, TelemetrySink

log = logging.getLogger(__name__)


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
        counts.count("__exception-count", 0)

    def raised(self, error: BaseException, where: str) -> str:
        """User code raised in ``where``. Returns the traceback."""
        text = "".join(tracebacks.format_exception(error))
        log.error("%s.%s raised %s: %s", self._name, where, type(error).__name__, error, exc_info=error)
        self._counts.count("__exception-count", 1)
        self._telemetry.exception(type(error).__name__, str(error), text, self._wall())
        if self._policy == "restart" or self.strict:
            self.record_failed(f"{self._name}.{where} raised {type(error).__name__}: {error}")
        return text

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
