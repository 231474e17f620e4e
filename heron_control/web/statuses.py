"""Which HTTP status says what a failure is: one table for every server of ours."""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError

from heron_runtime.failures import (
    ExistsAlready,
    Failure,
    Interrupted,
    InvalidTopology,
    NotAllowed,
    NotFound,
    Unavailable,
    UsageError,
)

RETRY = {"retry-after": "2"}  # goes with every 503
MAX_FAULTS = 8
_STATUSES: tuple[tuple[type[Failure], int], ...] = (
    (NotFound, 404),
    (ExistsAlready, 409),
    (NotAllowed, 403),
    (Unavailable, 503),
    (Interrupted, 503),
    (UsageError, 422),
    (InvalidTopology, 422),
)


def status_of(failure: Failure) -> int:
    """The status to answer with; 500 for what is nobody's but ours."""
    return next((status for kind, status in _STATUSES if isinstance(failure, kind)), 500)


def argument_faults(error: RequestValidationError) -> list[str]:
    """What is wrong with the arguments of a request, each named."""
    return [f"{'.'.join(str(p) for p in e['loc'][1:]) or e['loc'][0]}: {e['msg']}" for e in error.errors()][:MAX_FAULTS]
