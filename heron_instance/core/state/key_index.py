"""One entry per key: what a key is looked up by in the state of a task.

Keys that fields grouping sends to one task as the same key must find the same entry, and no others
(``heron_runtime/model/keys.py``). Python's own equality agrees with that for most keys, numbers of all kinds included;
where it does not (NaN, hooks, aware datetimes, and whatever contains one) the canonical encoding is the index.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from heron_runtime.model.keys import encode

#: A key of one of these types is its own index: Python's equality is the canonical one. (A float may be NaN.)
OWN_INDEX = frozenset({str, int, bytes, bool, type(None)})


def index_of(key: Any) -> Any:
    """What a key of one field is looked up by: equal for two keys if and only if they are the same. Raises
    UnsupportedKey."""
    if type(key) in OWN_INDEX:
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


def index_of_many(key: tuple[Any, ...]) -> Any:
    """The same for a key of several fields, given as a tuple."""
    if set(map(type, key)) <= OWN_INDEX:
        return key
    return tuple(map(index_of, key))


_HEX_DIGITS = tuple(bytes([digit]) for digit in b"0123456789abcdef")
