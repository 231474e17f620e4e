"""Bounded queries of a merged view: a page of keys, the keys with the largest totals, and one key over time.

Theory of operation. Each query reads the merge of batch and online layer by key (``View.read``), so its result equals
that of reading the whole view at once. A page begins *after* a key, not at a row number. So if rows are added or
counted meanwhile, or the next batch takes over, each key appears at most once, and no remaining key is skipped. Keys
are ordered by their canonical encodings: texts by code points, other keys in a stable order. Only texts have ranges,
because the order of other keys has no meaning to users.
"""

from __future__ import annotations

import base64
import binascii
import heapq
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from heron_runtime.failures import UsageError
from heron_runtime.model.keys import encode
from heronry.pipeline.rows import Span, decode_key, just_after, key_bytes
from heronry.pipeline.views import Answer, Merged, View

TEXTS = Span(b"s", b"t")  # all keys that are texts


class Total(NamedTuple):
    """Key and its value over all requested buckets."""

    key: Any
    value: Any


class Page(NamedTuple):
    """Totals of consecutive keys.

    Attributes:
        totals: The totals, ordered by key.
        next: Cursor of the next page, or None on the last page.
        at_most: Upper bound of the number of keys on this page and all later ones.
    """

    totals: list[Total]
    next: str | None
    at_most: int


class Series(NamedTuple):
    """Buckets of a key in time order. ``next_ms`` is the ``from_ms`` of the next part, or None at the end."""

    buckets: list[Answer]
    next_ms: int | None


@dataclass(frozen=True)
class Range:
    """Range of keys and buckets.

    Attributes:
        first: First text key, inclusive. If it or ``last`` is set, keys that are not texts are excluded.
        last: Last text key, inclusive.
        from_ms: Inclusive start of the buckets, in milliseconds since 1970 UTC.
        to_ms: Exclusive end of the buckets, in milliseconds since 1970 UTC.
    """

    first: str | None = None
    last: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def span(self) -> Span:
        """Return the range as a span of encoded keys. Raises UsageError if an end lies before its start."""
        if self.from_ms is not None and self.to_ms is not None and self.to_ms < self.from_ms:
            raise UsageError("to: is before from")
        span = Span(from_ms=self.from_ms, to_ms=self.to_ms)
        if self.first is None and self.last is None:
            return span
        low = TEXTS.low if self.first is None else key_bytes(self.first)
        below = TEXTS.below if self.last is None else just_after(key_bytes(self.last))
        if below is not None and below <= low:
            raise UsageError("last: is before first")
        return replace(span, low=low, below=below)


WHOLE = Range()


def page(view: View, limit: int, time_range: Range = WHOLE, cursor: str | None = None) -> Page:
    """Return the totals of the next ``limit`` keys.

    Args:
        view: The view.
        limit: Maximum number of keys, at least 1.
        time_range: Range of keys and buckets.
        cursor: ``next`` of the page before, or None for the first page.

    Raises:
        ViewError: The view cannot be read.
        UsageError: The limit, range or cursor is invalid.
    """
    _check("limit", limit)
    span = time_range.span()
    if cursor is not None:
        span = replace(span, low=max(span.low, _after(cursor)))
    merged = view.read(span)
    keys = list(islice(merged.keys, limit + 1))  # one more shows whether there is a next page
    more = len(keys) > limit
    totals = [_total(view, each) for each in keys[:limit]]
    return Page(totals, cursor_of(keys[limit - 1].key) if more else None, merged.at_most)


def top(
    view: View, n: int, time_range: Range = WHOLE, *, smallest: bool = False, most_rows: int | None = None
) -> list[Total]:
    """Return the ``n`` keys with the largest or smallest totals.

    Every row of the range is read, and n totals are kept in memory. Of equal totals, the lesser key comes first. NaN
    counts as greater than any number. Keys without a value (None) are omitted.

    Args:
        view: The view.
        n: Number of keys, at least 1.
        time_range: Range of keys and buckets.
        smallest: Whether to return the smallest totals, the smallest first, instead of the largest.
        most_rows: Maximum number of rows to read; None means unlimited.

    Raises:
        ViewError: The view cannot be read.
        UsageError: The values have no order, the range has more than ``most_rows`` rows, or an argument is invalid.
    """
    _check("n", n)
    merged = view.read(time_range.span())
    if most_rows is not None and merged.at_most > most_rows:
        raise UsageError(
            f"{merged.at_most} rows would have to be read, more than {most_rows}; ask for fewer keys (first, last) or "
            "buckets (from, to)"
        )
    totals = ((each.key, view.total(each)) for each in merged.keys)
    best = heapq.nsmallest if smallest else heapq.nlargest  # both keep the order of equals
    try:
        chosen = best(n, (total for total in totals if total[1] is not None), key=_rank)
    except TypeError as error:
        raise UsageError(f"the values of view {view.description.name} have no order: {error}") from None
    return [Total(decode_key(key), value) for key, value in chosen]


def series(view: View, key: Any, limit: int, from_ms: int | None = None, to_ms: int | None = None) -> Series:
    """Return the first ``limit`` buckets of a key, in time order.

    Args:
        view: The view.
        key: The key.
        limit: Maximum number of buckets, at least 1.
        from_ms: Inclusive start, in milliseconds since 1970 UTC.
        to_ms: Exclusive end, in milliseconds since 1970 UTC.

    Raises:
        ViewError: The view cannot be read.
        UsageError: The limit or range is invalid.
        TypeError: ``key`` cannot be a key.
    """
    _check("limit", limit)
    Range(from_ms=from_ms, to_ms=to_ms).span()
    buckets = view.buckets(key, from_ms, to_ms)
    return Series(buckets[:limit], buckets[limit].start if len(buckets) > limit else None)


def _check(name: str, number: int) -> None:
    if number < 1:
        raise UsageError(f"{name}: {number} is less than 1")


def _total(view: View, merged: Merged) -> Total:
    return Total(decode_key(merged.key), view.total(merged))


def _rank(total: tuple[bytes, Any]) -> tuple[bool, Any]:
    value = total[1]
    if isinstance(value, tuple | list | dict | set):
        raise TypeError(f"a {type(value).__name__} is not a single value")
    return (False, value) if value == value else (True, 0)


def cursor_of(key: bytes) -> str:
    """Return a cursor for the position after a key, as URL-safe text."""
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _after(cursor: str) -> bytes:
    """Return the key at which the page of a cursor begins. Raises UsageError for an invalid cursor."""
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if encode(decode_key(key)) == key:
            return just_after(key)
    except (ValueError, binascii.Error, TypeError, ArithmeticError, RecursionError):
        pass
    raise UsageError("cursor: not a cursor of a page of a view")
