"""Conversion between values and bytes, for systems whose messages are bytes."""

from __future__ import annotations

import json
import math
from typing import Any


def value_of(data: bytes | None) -> str | bytes | None:
    """Return the content of a message: text if it is valid UTF-8, otherwise the bytes; None for a missing field."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def fitting(value: Any) -> bytes:
    """Return a value as bytes: text and bytes unchanged, other values as JSON.

    Raises:
        ValueError: The value cannot be represented. The message states the reason.
    """
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise ValueError("has a surrogate, which UTF-8 cannot encode") from None
    if isinstance(value, bytes):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not a finite number, so JSON cannot represent it")
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):
        raise ValueError("is not text, bytes or a JSON value") from None
