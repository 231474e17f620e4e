"""What a command can end with: one exception for each exit code, and how other parts' errors become these.

An error has a message (what is wrong), perhaps a cure (what to do) and details (a traceback of the user's code, the
last lines of a log). No Python traceback is shown unless ``--verbose`` asks for it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

import grpc

from heronry.api.errors import (
    PackageError,
    TopologyError,
    TopologyNotFound,
    UserCodeError,
    did_you_mean,
)
from heronry.packing import PackingError
from heronry.schedulers.scheduler import SchedulerError
from heronry.state.store import StoreError, StoreUnavailable, ValueTooLarge
from heronry.state.topologies import AlreadyExists, NoSuchTopology
from heronry.state.validation import InvalidPath


class Failure(Exception):
    """The command failed."""

    exit_code = 1

    def __init__(self, message: str, cure: str = "", details: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.cure = cure
        self.details = tuple(details)


class UsageError(Failure):
    """The command line makes no sense."""

    exit_code = 2


class NotFound(Failure):
    """What was named is not there."""

    exit_code = 3


class ExistsAlready(Failure):
    """The name is in use."""

    exit_code = 4


class NotAllowed(Failure):
    """The operating system or the cluster forbids it."""

    exit_code = 5


class Unavailable(Failure):
    """Something that has to answer does not, or not in time."""

    exit_code = 6


class InvalidTopology(Failure):
    """The topology, its code or its package cannot be run."""

    exit_code = 7


class Interrupted(Failure):
    """Ctrl-C; the message says what was done and what not."""

    exit_code = 130


def topology_not_found(name: str, cluster: str, known: Iterable[str]) -> NotFound:
    """There is no topology of this name; the nearest name is proposed."""
    hint = did_you_mean(name, known)
    return NotFound(f"there is no topology {name!r} in {cluster}{hint}", f"See `heron list {cluster}`.")


def translate(error: BaseException) -> Failure | None:
    """The Failure that says what ``error`` of another part means; None if it is not known."""
    if isinstance(error, Failure):
        return error
    text = str(error)
    if isinstance(error, NoSuchTopology):
        return NotFound(text)
    if isinstance(error, AlreadyExists):
        return ExistsAlready(text, "Kill it first, submit with --replace, or choose another --name.")
    if isinstance(error, InvalidPath):
        return UsageError(text)
    if isinstance(error, StoreUnavailable):
        return Unavailable(text)
    if isinstance(error, ValueTooLarge):
        return InvalidTopology(text)
    if isinstance(error, StoreError):
        return NotAllowed(text) if _forbidden(error.__cause__) else Failure(text)
    if isinstance(error, UserCodeError):
        details = [part for part in (error.output.rstrip(), error.traceback.rstrip()) if part]
        return InvalidTopology(text, details=details)
    if isinstance(error, TopologyNotFound):
        return NotFound(text)
    if isinstance(error, TopologyError | PackageError | PackingError):
        return InvalidTopology(text)
    if isinstance(error, SchedulerError):
        return Unavailable(text)
    if isinstance(error, grpc.RpcError):
        return _from_rpc(error)
    return _from_os(error) if isinstance(error, OSError) else None


def _forbidden(error: BaseException | None) -> bool:
    """True if the operating system does not let us write there."""
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS)


def _from_rpc(error: grpc.RpcError) -> Failure:
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
    if _forbidden(error):
        return NotAllowed(text, "Make it writable, or set HERONRY_HOME to another folder.")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure(text, "The disk is full or the quota used up: free some space.")
    if isinstance(error, FileNotFoundError):
        return NotFound(text)
    return Failure(text)
