"""Pages of a sorted list by cursor.

A cursor is the key after which the next page begins, so no item is skipped when the list changes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from heron_runtime.failures import UsageError

T = TypeVar("T")
MAX_CURSOR = 8192


class InvalidCursor(UsageError, ValueError):
    """The cursor was not issued by a tracker."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of ``total`` items. ``next`` is the cursor of the next page, None on the last."""

    items: tuple[T, ...]
    total: int
    next: str | None


def take_page(items: Sequence[tuple[tuple[str, ...], T]], limit: int, cursor: str | None) -> Page[T]:
    """Return the page after ``cursor`` of (key, item) pairs that are sorted by key. Raises InvalidCursor."""
    begin = 0
    if cursor:
        after = decode_cursor(cursor)
        begin = next((n for n, (key, _) in enumerate(items) if key > after), len(items))
    chosen = items[begin : begin + limit]
    more = begin + limit < len(items)
    after_it = encode_cursor(chosen[-1][0]) if more and chosen else None
    return Page(tuple(item for _, item in chosen), len(items), after_it)


def encode_cursor(key: tuple[str, ...]) -> str:
    """Return a key as URL-safe text."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[str, ...]:
    """Return the key of a cursor. Raises InvalidCursor."""
    try:
        if len(cursor) > MAX_CURSOR:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
            raise ValueError("not a key")
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidCursor(f"cursor: invalid cursor ({error})") from None
    return tuple(key)
