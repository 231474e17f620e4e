"""JSON values of configurations and plans, without secrets.

Configurations belong to users and may contain any plain value, including bytes, NaN and passwords. Values that
``heron_runtime.model.masking`` considers secret are masked: those of secret names, also of environment variables,
and credentials inside URLs and DSNs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from heron_runtime.model.masking import HIDDEN, is_secret, mask

MAX_DEPTH = 16
MAX_TEXT = 4096  # characters of one value of a configuration


def json_value(value: Any, depth: int = 0) -> Any:
    """Convert a value for JSON: bytes become hexadecimal text, NaN and infinities texts; the depth is limited."""
    if depth > MAX_DEPTH:
        return "…"
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(item, depth + 1) for item in value]
    return str(value)


def redact_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without secrets, sorted by key."""
    return {str(key): _public(str(key), config[key]) for key in sorted(config, key=str)}


def _public(key: str, value: Any) -> Any:
    if is_secret(key) and value not in (None, "", True, False):
        return HIDDEN
    if isinstance(value, Mapping):
        return redact_config(value)
    if isinstance(value, list | tuple):
        return [_public("", item) for item in value]
    if isinstance(value, str):
        shown = mask(value)
        return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + "…"
    return json_value(value)


def json_number(value: float) -> int | float | None:
    """Return a whole number without its ``.0``, or None for NaN and infinities."""
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else value
