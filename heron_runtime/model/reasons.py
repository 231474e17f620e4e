"""Why a spout tuple failed: given to ``Spout.fail(tup_id, reason)``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_REASON_TEXT = 8_192


class FailKind(StrEnum):
    """The causes a root can fail for."""

    FAILED = "failed"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    STREAM_MANAGER_LOST = "stream_manager_lost"
    MOVED = "moved"


@dataclass(frozen=True, slots=True)
class FailReason:
    """Why a tuple tree failed, and where.

    ``component`` and ``task`` name the bolt that failed the tuple. For a timeout, which nobody caused alone, they name
    the one that most waited for then (empty: no queue was long), and ``message`` says so in one line.
    ``elapsed_ms`` is the time from emit to fail, measured by the spout.
    """

    kind: FailKind
    component: str = ""
    task: int = 0
    message: str = ""
    traceback: str = ""
    elapsed_ms: float = 0.0
