"""Descriptions of failed request arguments."""

from __future__ import annotations

from fastapi.exceptions import RequestValidationError

RETRY = {"retry-after": "2"}  # sent with every 503
MAX_FAULTS = 8


def argument_faults(error: RequestValidationError) -> list[str]:
    """Return what is wrong with each argument of a request."""
    return [f"{'.'.join(str(p) for p in e['loc'][1:]) or e['loc'][0]}: {e['msg']}" for e in error.errors()][:MAX_FAULTS]
