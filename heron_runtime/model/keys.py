"""Keys of fields grouping: equality of keys, and the key group of a key.

Theory of operation. Two values that are equal in Python must be sent to the same task, in every process, on every run
and after every restart. A key is therefore never hashed with ``hash()`` (salted for str) or by its pickle (which
differs for 1, 1.0 and True), but by a canonical encoding:

===================  =================================================================================
None                 ``N``
str                  ``s`` and UTF-8
bytes                ``b`` and the bytes
numbers              ``n`` and the exact value in hexadecimal: an integer, or ``numerator/denominator``;
                     1, 1.0, True, Decimal(1) and Fraction(1) are one key; ``ninf``, ``n-inf``; NaN is one key
date                 ``d`` and the day number
datetime, naive      ``t`` and microseconds
datetime, aware      ``z`` and microseconds in UTC
tuple                ``(``, the number of elements and each, preceded by its length
frozenset            ``{``, the same with the encodings in order
===================  =================================================================================

A user's class may define ``__heronry_key__()``, which returns one of these. Any other type is refused, since its equal
values might have different encodings. A key of one field that is a str takes a fast path: its UTF-8 is hashed directly.
The hash is MurmurHash3 (32 bits, fixed seed), and the group is its low ten bits. The encoding is not stored but
determines the location of keyed state. A change of it would break every running topology.
"""

from __future__ import annotations

import datetime as dt
import math
import numbers
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mmh3

from heron_runtime.model.ids import KEY_GROUPS

HASH_SEED = 0x48524E59  # "HRNY"
MAX_DEPTH = 32  # tuples in tuples, and hooks that return objects with hooks
MAX_DECIMAL_EXPONENT = 5_000  # the exact value of Decimal("1E999999999") would fill the memory

_GROUP_MASK = KEY_GROUPS - 1
_NAN = b"nnan"
_EPOCH = dt.date(1970, 1, 1).toordinal()

#: Keys of these types are their own index: Python's equality is canonical for them. (A float may be NaN.)
PLAIN_KEY_TYPES = frozenset({str, int, bytes, bool, type(None)})

_HEX_DIGITS = tuple(bytes([digit]) for digit in b"0123456789abcdef")

_CURES = {
    "list": "use tuple(value)",
    "set": "use frozenset(value)",
    "dict": "use tuple(sorted(value.items()))",
    "bytearray": "use bytes(value)",
    "memoryview": "use bytes(value)",
    "UUID": "use str(value)",
    "timedelta": "use value.total_seconds()",
    "time": "use value.isoformat()",
    "ndarray": "use tuple(value.tolist())",
}


class UnsupportedKey(TypeError):
    """A value cannot be a key. ``reason`` is the reason, ``cure`` the alternative to use.

    The collector, which knows the origin of the value, raises ``error.located(...)`` in its place.
    """

    def __init__(self, reason: str, cure: str, where: str = "") -> None:
        super().__init__(f"{where}{reason}: {cure}")
        self.reason = reason
        self.cure = cure

    def located(self, component: str, stream: str, field: str) -> UnsupportedKey:
        """Return a copy of the error that names the emitting component, its stream and the field."""
        return UnsupportedKey(self.reason, self.cure, f"component {component!r}, stream {stream!r}, field {field!r}: ")


def group_of(value: Any) -> int:
    """Return the key group (0 to 1023) of a key of one field. Raises UnsupportedKey."""
    kind = type(value)
    if kind is str:
        # mmh3 aborts the process on a str that is not valid UTF-8 (lone surrogates), so only ASCII is passed as str.
        return mmh3.hash(value if value.isascii() else _text(value), HASH_SEED) & _GROUP_MASK
    if kind is int:
        return mmh3.hash(b"n%x" % value, HASH_SEED) & _GROUP_MASK
    encoded = encode(value)
    # A StrEnum equals its value, and a hook may return a str. Both are hashed like that str.
    return mmh3.hash(encoded[1:] if encoded[:1] == b"s" else encoded, HASH_SEED) & _GROUP_MASK


def group_of_many(values: tuple[Any, ...]) -> int:
    """Return the key group (0 to 1023) of a key of several fields. Raises UnsupportedKey.

    The hash of each field is the seed of the next, so fields need not be concatenated. The result for one field may
    differ from that of ``group_of``.
    """
    seed = HASH_SEED
    for value in values:
        kind = type(value)
        if kind is str and value.isascii():
            seed = mmh3.hash(value, seed, signed=False)
        elif kind is int:
            seed = mmh3.hash(b"n%x" % value, seed, signed=False)
        else:
            encoded = encode(value)
            seed = mmh3.hash(encoded[1:] if encoded[:1] == b"s" else encoded, seed, signed=False)
    return seed & _GROUP_MASK


def key_group(values: tuple[Any, ...]) -> int:
    """Return the key group of a key of one or several fields. Raises UnsupportedKey."""
    return group_of(values[0]) if len(values) == 1 else group_of_many(values)


def encode(value: Any) -> bytes:
    """Return the canonical encoding, which is equal only for equal keys. Raises UnsupportedKey."""
    return _encode(value, 0)


def index_of(key: Any) -> Any:
    """Return a hashable value that is equal for two keys if and only if they are the same key. Raises UnsupportedKey.

    Most keys are their own index.
    """
    kind = type(key)
    if kind in PLAIN_KEY_TYPES or (kind is float and key - key == 0.0):
        return key
    encoded = encode(key)
    tag, rest = encoded[:1], encoded[1:]
    if tag == b"s":
        return rest.decode("utf-8", "surrogatepass")
    if tag == b"b":
        return rest
    if tag == b"N":
        return None
    if tag == b"n" and rest.lstrip(b"-")[:1] in _HEX_DIGITS and rest.lstrip(b"-") not in (b"nan", b"inf"):
        above, _, below = rest.decode().partition("/")
        return Fraction(int(above, 16), int(below, 16)) if below else int(above, 16)
    return (encoded,)


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _encode(value: Any, depth: int) -> bytes:
    if type(value) is float:
        return _float(value)
    if depth > MAX_DEPTH:
        raise UnsupportedKey(f"a key nested deeper than {MAX_DEPTH} levels", "use a flatter key")
    hook = getattr(type(value), "__heronry_key__", None)
    if hook is not None:
        return _encode(hook(value), depth + 1)
    if isinstance(value, str):
        return b"s" + _text(str.__str__(value))
    if isinstance(value, bytes):
        return b"b" + bytes(value)
    if isinstance(value, int):
        return b"n%x" % int.__int__(value)
    if isinstance(value, tuple):
        return _sequence(b"(", [_encode(element, depth + 1) for element in value])
    if isinstance(value, frozenset):
        return _sequence(b"{", sorted(_encode(element, depth + 1) for element in value))
    if value is None:
        return b"N"
    if isinstance(value, dt.datetime):
        return _datetime(value)
    if isinstance(value, dt.date):
        return b"d%d" % (value.toordinal() - _EPOCH)
    return _number(value)


def _sequence(tag: bytes, elements: list[bytes]) -> bytes:
    return tag + b"%d:" % len(elements) + b"".join(b"%d:%b" % (len(e), e) for e in elements)


def _datetime(value: dt.datetime) -> bytes:
    # With integers, since astimezone() overflows near years 1 and 9999. An aware datetime is encoded as its instant.
    # The two times in a repeated hour are therefore different keys, although == treats them as equal if they share
    # their tzinfo object.
    days = value.toordinal() - _EPOCH
    seconds = days * 86_400 + value.hour * 3_600 + value.minute * 60 + value.second
    microseconds = seconds * 1_000_000 + value.microsecond
    offset = value.utcoffset()
    if offset is None:
        return b"t%d" % microseconds
    return b"z%d" % (microseconds - offset // dt.timedelta(microseconds=1))


def _number(value: Any) -> bytes:
    """Encode any other numeric type, including those of numpy, by its exact value."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        if value.dtype.kind not in "biufc":
            raise _refused(value)
        plain = value.item()
        if type(plain) is not kind:
            return _encode(plain, 0)
    if isinstance(value, Decimal):
        _check_decimal(value)
        if value.is_nan():
            return _NAN
        if value.is_infinite():
            return b"n-inf" if value < 0 else b"ninf"
        return _ratio(*value.as_integer_ratio())
    if isinstance(value, numbers.Integral):
        return b"n%x" % int(value)
    if isinstance(value, numbers.Rational):
        return _ratio(int(value.numerator), int(value.denominator))
    if isinstance(value, numbers.Real) and hasattr(value, "as_integer_ratio"):
        return _float(value)
    if isinstance(value, complex):
        if value.imag == 0:
            return _number(value.real)
        parts = _number(value.real), _number(value.imag)
        return _NAN if _NAN in parts else _sequence(b"c", list(parts))
    raise _refused(value)


def _float(value: Any) -> bytes:
    """Encode a float of Python, or a float of numpy that is not a Python float."""
    if value != value:
        return _NAN
    if value in (math.inf, -math.inf):
        return b"n-inf" if value < 0 else b"ninf"
    return _ratio(*value.as_integer_ratio())


def _ratio(numerator: int, denominator: int) -> bytes:
    return b"n%x" % numerator if denominator == 1 else b"n%x/%x" % (numerator, denominator)


def _check_decimal(value: Decimal) -> None:
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and abs(exponent) > MAX_DECIMAL_EXPONENT:
        raise UnsupportedKey(
            f"a Decimal with exponent {exponent} is too large for a key (at most ±{MAX_DECIMAL_EXPONENT})",
            "use str(value), or round it",
        )


def _refused(value: Any) -> UnsupportedKey:
    kind = type(value)
    cure = _CURES.get(kind.__name__)
    if cure is None and any(base.__name__ == "Enum" for base in kind.__mro__):
        cure = "use value.name"
    if cure is None:
        cure = (
            "use a str, bytes, number, date, datetime, tuple or frozenset, or give the class a method "
            "__heronry_key__(self) that returns one of these"
        )
    return UnsupportedKey(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be a key", cure)
