"""Questions to a merged view whose answers are bounded: a page of keys, the keys with the most, one key over time.

Theory of operation. Each is answered from the merge of batch and online layer by key (``View.read``), so it is what
would be found in the whole view read at once. A page begins *after* a key, not at a number of rows: whatever is added
or counted meanwhile, and also where the next batch has taken over, no key comes twice and none that stays is passed
over. The order of keys is that of their canonical encodings: texts by code points, other keys in an order that is
always the same. Only texts have ranges, for the order of other keys means nothing to people.
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
from heronry.pipeline.row_groups import Span, just_after
from heronry.pipeline.rows import decode_key, key_bytes
from heronry.pipeline.views import Answer, Merged, View

TEXTS = Span(b"s", b"t")  # the keys that are texts


class Total(NamedTuple):
    """A key over all its buckets that were asked for."""

    key: Any
    value: Any


class Page(NamedTuple):
    """Some totals by key. ``next``: the cursor of the page after, None on the last. ``at_most``: this page and those
    after it have no more keys."""

    totals: list[Total]
    next: str | None
    at_most: int


class Series(NamedTuple):
    """The buckets of a key by time. ``next_ms``: the ``from_ms`` that goes on where this ends, None at the end."""

    buckets: list[Answer]
    next_ms: int | None


@dataclass(frozen=True)
class Range:
    """Which keys and buckets. ``first`` and ``last`` are texts, both inclusive; with one of them, keys that are no text
    are out. A bucket counts if it lies in [from, to), ms since 1970 UTC."""

    first: str | None = None
    last: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def span(self) -> Span:
        """The same for readers. Raises UsageError for an end before its beginning."""
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


def page(view: View, limit: int, asked: Range = WHOLE, cursor: str | None = None) -> Page:
    """The next ``limit`` keys with their totals. Raises ViewError, UsageError."""
    _check("limit", limit)
    span = asked.span()
    if cursor is not None:
        span = replace(span, low=max(span.low, _after(cursor)))
    found = view.read(span)
    keys = list(islice(found.keys, limit + 1))  # one more tells whether it goes on
    more = len(keys) > limit
    totals = [_total(view, each) for each in keys[:limit]]
    return Page(totals, cursor_of(keys[limit - 1].key) if more else None, found.at_most)


def top(
    view: View, n: int, asked: Range = WHOLE, *, smallest: bool = False, most_rows: int | None = None
) -> list[Total]:
    """The ``n`` keys with the largest totals, the largest first, or with the smallest. Every row of the range is read,
    and n are kept.

    Of equal totals the lesser key comes first; NaN is greater than any number; keys without a value (None) are left
    out. Raises ViewError; UsageError for values that have no order, and for more than ``most_rows`` rows.
    """
    _check("n", n)
    found = view.read(asked.span())
    if most_rows is not None and found.at_most > most_rows:
        raise UsageError(
            f"{found.at_most} rows would have to be read, more than {most_rows}; ask for fewer keys (first, last) or "
            "buckets (from, to)"
        )
    totals = ((each.key, view.total(each)) for each in found.keys)
    best = heapq.nsmallest if smallest else heapq.nlargest  # both keep the order of equals
    try:
        chosen = best(n, (total for total in totals if total[1] is not None), key=_rank)
    except TypeError as error:
        raise UsageError(f"the values of view {view.description.name} have no order: {error}") from None
    return [Total(decode_key(key), value) for key, value in chosen]


def series(view: View, key: Any, limit: int, from_ms: int | None = None, to_ms: int | None = None) -> Series:
    """The first ``limit`` buckets of a key, by time. Raises ViewError, UsageError; TypeError for what is no key."""
    _check("limit", limit)
    Range(from_ms=from_ms, to_ms=to_ms).span()
    found = view.buckets(key, from_ms, to_ms)
    return Series(found[:limit], found[limit].start if len(found) > limit else None)


def _check(name: str, number: int) -> None:
    if number < 1:
        raise UsageError(f"{name}: {number} is less than 1")


def _total(view: View, found: Merged) -> Total:
    return Total(decode_key(found.key), view.total(found))


def _rank(total: tuple[bytes, Any]) -> tuple[bool, Any]:
    value = total[1]
    if isinstance(value, tuple | list | dict | set):
        raise TypeError(f"a {type(value).__name__} is no single value")
    return (False, value) if value == value else (True, 0)


def cursor_of(key: bytes) -> str:
    """A place in a view, as text that may stand in a URL."""
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def _after(cursor: str) -> bytes:
    """Where the page of a cursor begins. Raises UsageError for what was never the cursor of a page."""
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if encode(decode_key(key)) == key:
            return just_after(key)
    except (ValueError, binascii.Error, TypeError, ArithmeticError, RecursionError):
        pass
    raise UsageError("cursor: is none that a page of a view gave")
