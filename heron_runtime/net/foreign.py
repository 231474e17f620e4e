"""What errors that are not ours mean to a user: gRPC's and the operating system's, as failures with exit codes."""

from __future__ import annotations

import errno
import sys

from heron_runtime.failures import Failure, NotAllowed, NotFound, Unavailable, UsageError


def translate(error: BaseException) -> Failure | None:
    """``error`` as a Failure: itself, or what gRPC or the operating system means by it; None if it is not known."""
    if isinstance(error, Failure):
        return error
    if "grpc" in sys.modules and (failure := _from_rpc(error)) is not None:  # who never called has no such error
        return failure
    return _from_os(error) if isinstance(error, OSError) else None


def _from_rpc(error: BaseException) -> Failure | None:
    import grpc

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
