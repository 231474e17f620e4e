"""Failures: exceptions with an exit code and an HTTP status, and the translation of foreign errors into them.

A failure has a message (what is wrong), perhaps a cure (what to do) and details (a traceback of user code, the last
lines of a log). A Python traceback is shown only with `--verbose`. Errors of other packages derive from the kind that
they are.
"""

from __future__ import annotations

import difflib
import errno
import sys
import traceback
from collections.abc import Callable, Iterable

SCREEN_LINES, SCREEN_COLUMNS = 40, 400


def encodable(text: str) -> str:
    """Return the text with lone surrogates escaped, which UTF-8 cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


class Failure(Exception):
    """An error that is shown to the user, with its exit code and HTTP status."""

    exit_code, http_status = 1, 500
    cure = ""
    details: tuple[str, ...] = ()

    def __init__(self, message: str = "", cure: str = "", details: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.cure = cure or self.cure
        self.details = tuple(details) or self.details

    @property
    def message(self) -> str:
        """The text without cure and details."""
        return str(self)


class UsageError(Failure):
    """The command line or the request is invalid."""

    exit_code, http_status = 2, 422


class NotFound(Failure):
    """The named object does not exist."""

    exit_code, http_status = 3, 404


class ExistsAlready(Failure):
    """The name is already in use."""

    exit_code, http_status = 4, 409


class NotAllowed(Failure):
    """The operating system or the cluster forbids it."""

    exit_code, http_status = 5, 403


class Unavailable(Failure):
    """Something that has to answer does not, or not in time."""

    exit_code, http_status = 6, 503


class InvalidTopology(Failure):
    """The topology, its code or its package cannot be run."""

    exit_code, http_status = 7, 422


class Interrupted(Failure):
    """Ctrl-C; the message says what was done and what not."""

    exit_code, http_status = 130, 503


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` with the most similar known word (ignoring case), or "" if none is close."""
    by_folded = {name.casefold(): name for name in known}
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[matches[0]]!r}?" if matches else ""


def listing(names: Iterable[str], limit: int = 12) -> str:
    """Return ``'a', 'b', 'c'``, truncated after ``limit`` names, or ``none`` if `names` is empty."""
    quoted = [repr(name) for name in names]
    more = f" and {len(quoted) - limit} more" if len(quoted) > limit else ""
    return (", ".join(quoted[:limit]) + more) or "none"


def one_line(text: str, most: int = 500) -> str:
    """Return foreign text in a form that fits into one line of a message.

    The text is truncated to ``most`` characters. Line breaks and control characters are escaped, so that the text
    cannot forge a line of its own.
    """
    cut = text if len(text) <= most else text[:most] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def screenful(text: str) -> str:
    """Return the end of foreign text: at most SCREEN_LINES lines of at most SCREEN_COLUMNS characters."""
    tail = text[-2 * SCREEN_LINES * SCREEN_COLUMNS :]
    lines = tail.splitlines(keepends=True)
    if len(tail) == len(text) and len(lines) <= SCREEN_LINES and max(map(len, lines), default=0) <= SCREEN_COLUMNS:
        return text
    last_lines = (
        line if len(line) <= SCREEN_COLUMNS else line[:SCREEN_COLUMNS] + "…\n" for line in lines[-SCREEN_LINES:]
    )
    return "…\n" + "".join(last_lines)


def users_traceback(error: BaseException, is_own: Callable[[str], bool]) -> str:
    """Format the traceback of an error and of its causes without the frames for whose files `is_own` is true."""
    whole = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = whole
    for _ in range(20):
        if part is None:
            break
        part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if not is_own(frame.filename)])
        part = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
    return "".join(whole.format())


def to_failure(error: BaseException) -> Failure | None:
    """Return `error` as a Failure, or None if its kind is unknown.

    Translates errors of gRPC and of the operating system. A Failure is returned unchanged.
    """
    if isinstance(error, Failure):
        return error
    if "grpc" in sys.modules and (failure := _from_rpc(error)) is not None:
        return failure
    return _from_os(error) if isinstance(error, OSError) else None


def _from_rpc(error: BaseException) -> Failure | None:
    grpc = sys.modules["grpc"]  # not imported: instances import this module and do without gRPC
    if not isinstance(error, grpc.RpcError):
        return None
    code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    detail = (error.details() if isinstance(error, grpc.Call) else "") or code.name
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return Unavailable(f"no answer: {detail}", "Look at `heron status`; try again in a few seconds.")
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return NotAllowed(f"refused: {detail}")
    if code is grpc.StatusCode.NOT_FOUND:
        return NotFound(detail)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(detail)
    return Failure(f"{code.name.lower().replace('_', ' ')}: {detail}")


def _from_os(error: OSError) -> Failure:
    name = f"{error.filename}: " if error.filename else ""
    text = f"{name}{error.strerror or error}"
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return NotAllowed(text, "Make it writable, or set HERONRY_HOME to another folder.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(text, "The disk is full or the quota used up: free some space.")
    if isinstance(error, FileNotFoundError):
        return NotFound(text)
    return Failure(text)
