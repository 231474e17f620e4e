"""Pages of a sorted list by cursor: the key after which the next page begins, so a list that changes loses nothing."""

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
    """The cursor is none that this tracker gave."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of ``total`` things; ``next`` is the cursor of the page after, None on the last."""

    items: tuple[T, ...]
    total: int
    next: str | None


def take_page(items: Sequence[tuple[tuple[str, ...], T]], limit: int, cursor: str | None) -> Page[T]:
    """The page after ``cursor`` of (key, item) pairs that are sorted by key. Raises InvalidCursor."""
    begin = 0
    if cursor:
        after = decode_cursor(cursor)
        begin = next((n for n, (key, _) in enumerate(items) if key > after), len(items))
    chosen = items[begin : begin + limit]
    more = begin + limit < len(items)
    after_it = encode_cursor(chosen[-1][0]) if more and chosen else None
    return Page(tuple(item for _, item in chosen), len(items), after_it)


def encode_cursor(key: tuple[str, ...]) -> str:
    """A key as text that may stand in a URL."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> tuple[str, ...]:
    """The inverse. Raises InvalidCursor."""
    try:
        if len(cursor) > MAX_CURSOR:
            raise ValueError("too long")
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(key, list) or not all(isinstance(part, str) for part in key):
            raise ValueError("not a key")
    except (ValueError, binascii.Error, RecursionError) as error:
        raise InvalidCursor(f"cursor: the cursor is none of this tracker's ({error})") from None
    return tuple(key)
