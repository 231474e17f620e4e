"""Exact sums of numbers, which do not depend on the order or grouping of the values.

Theory of operation. Python rounds each sum of floats, so ``1e16 + 1 - 1e16`` is 0 or 1 by the order. Here a sum stays a
plain number while it is exact: an int, a Decimal, or a float that equals the sum of its floats. Otherwise it is a tuple
``(MARK, whole, *parts)``: an int and floats whose mathematical sum is the value. Parts are joined when there are many
of them, into floats that do not overlap (Shewchuk 1997), of which about two are left. ``round_sum`` rounds once.

Sums of Decimals keep all digits, up to 10,000. Infinities and NaN add up as usual.
"""

from __future__ import annotations

import decimal
import math
from contextlib import suppress
from fractions import Fraction
from typing import Any

MARK = "floats"
MAX_PARTS = 24
_SMALL = 1 << 53  # every int up to this is a float
#: Python's own context rounds sums to 28 digits, so they would depend on the order. Sums beyond these raise.
EXACT = decimal.Context(prec=10_000, traps=[decimal.InvalidOperation, decimal.Overflow, decimal.Inexact])


def add_exactly(a: Any, b: Any) -> Any:
    """Return the exact sum of two numbers or sums. Values of other types are added by ``+``.

    Raises:
        decimal.Inexact: A sum of Decimals has more than 10,000 digits.
    """
    if a.__class__ is int and b.__class__ is int:
        return a + b
    if b.__class__ is float:
        if a.__class__ is float:
            total = a + b
            rounded = total - a
            if (a - (total - rounded)) + (b - rounded) == 0.0:
                return total  # exact
            return (MARK, 0, a, b) if a - a == 0.0 == b - b else total  # inf - inf is NaN
        if is_sum(a):
            return b if b - b != 0.0 else (*a, b) if len(a) < MAX_PARTS else _join_parts((*a, b))
    if b.__class__ is decimal.Decimal and a.__class__ in (decimal.Decimal, int):
        return EXACT.add(a, b)
    if a.__class__ is decimal.Decimal and b.__class__ is int:
        return EXACT.add(a, b)
    if is_sum(a) or is_sum(b) or isinstance(a, float) or isinstance(b, float):
        return _mixed(a, b)
    return a + b


def add_all(acc: Any, values: list[float]) -> Any:
    """Return the exact sum of a number, a sum or None, and of floats."""
    if acc is None:
        acc, values = values[0], values[1:]
    if len(values) > 1 and any(values) and (acc.__class__ is float or is_sum(acc)):
        parts = (*acc[1:], *values) if is_sum(acc) else (0, acc, *values)
        if all(map(math.isfinite, parts[1:])):
            return _join_parts((MARK, *parts))
    for value in values:
        acc = add_exactly(acc, value)
    return acc


def is_sum(acc: Any) -> bool:
    """Return True for a sum that is not a plain number."""
    return acc.__class__ is tuple and len(acc) > 1 and acc[0] == MARK


def round_sum(acc: Any) -> Any:
    """Return a sum as a number: the nearest float, or an infinity beyond the range of floats."""
    if not is_sum(acc):
        return acc
    if not acc[1]:
        with suppress(OverflowError):
            return math.fsum(acc[2:])
    return _nearest(_fraction(acc))


def divide(acc: Any, count: int) -> Any:
    """Return a sum divided by a count, also where only the sum exceeds the range of floats."""
    total = round_sum(acc)
    return _nearest(_fraction(acc) / count) if is_sum(acc) and math.isinf(total) else total / count


def pack_sum(acc: Any) -> Any:
    """Return a sum as plain data."""
    return list(acc) if is_sum(acc) else acc


def unpack_sum(data: Any) -> Any:
    """Return the sum of plain data."""
    return tuple(data) if data.__class__ is list else data


def _mixed(a: Any, b: Any) -> Any:
    """Add operands of which at least one is a sum or some kind of float."""
    parts_a, parts_b = _parts(a), _parts(b)
    if parts_a is None or parts_b is None:
        return round_sum(a) + round_sum(b)  # a Decimal, for example: TypeError
    floats = (*parts_a[1:], *parts_b[1:])
    if not all(map(math.isfinite, floats)):
        return sum(part for part in floats if not math.isfinite(part))
    return _join_parts((MARK, parts_a[0] + parts_b[0], *floats))


def _parts(acc: Any) -> tuple[Any, ...] | None:
    """Return the int and the floats of a number or sum; None for other types."""
    if is_sum(acc):
        return tuple(acc[1:])
    if isinstance(acc, float):
        return 0, float(acc)
    if isinstance(acc, int):
        return (0, float(acc)) if -_SMALL <= acc <= _SMALL else (int(acc),)
    return None


def _join_parts(acc: tuple[Any, ...]) -> Any:
    """Return a sum with as few parts as possible, or the float that equals it."""
    floats, joined = list(acc[2:]), []
    try:
        while part := math.fsum(floats):
            joined.append(part)
            floats.append(-part)
    except OverflowError:
        return _of_fraction(_fraction(acc))
    if acc[1]:
        return (MARK, acc[1], *joined)
    return (MARK, 0, *joined) if len(joined) > 1 else joined[0] if joined else 0.0


def _of_fraction(exact: Fraction) -> tuple[Any, ...]:
    """Return a sum whose greatest parts do not fit into floats."""
    whole, joined = math.trunc(exact), []
    rest = exact - whole
    while rest:
        joined.append(float(rest))
        rest -= Fraction(joined[-1])
    return (MARK, whole, *joined)


def _fraction(acc: tuple[Any, ...]) -> Fraction:
    return sum(map(Fraction, acc[2:]), Fraction(acc[1]))


def _nearest(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
