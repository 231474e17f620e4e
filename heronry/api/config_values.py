"""Checks of single configuration values, and their conversion to plain data.

Sizes may be texts: ``"512MB"``, ``"64MiB"``, ``"2GB"``. Both spellings are binary units, as in Heron. The error for a
value in the wrong unit names the right unit.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from heron_runtime.extensions import PACKING, SERIALIZERS, ExtensionError
from heron_runtime.failures import did_you_mean, listing, one_line
from heron_runtime.model.settings import Keys, Setting

MAX_DEPTH = 32
MAX_NUMBER = 2**63 - 1
_POWERS = {"": 0, "B": 0} | {f"{size}{unit}": power for power, size in enumerate("KMGT", 1) for unit in ("", "B", "IB")}
MAX_SIZE_TEXT = 64  # characters of a size such as "512MB"
MAX_NUMBER_TEXT = 400  # digits; longer texts are not numbers
_YAML_FLOAT = re.compile(r"[+-]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?|\.inf)|\.nan")
_BYTES = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]*)")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


class BadValue(ValueError):
    """An invalid value. The text has the reason and the expected form, without the key."""


def parse_bytes(text: str) -> int:
    """Parse a size such as ``"512MB"`` to bytes. Raises BadValue."""
    text = text.strip()
    match = _BYTES.fullmatch(text) if len(text) <= MAX_SIZE_TEXT else None
    power = _POWERS.get(match[2].upper()) if match else None
    if match is None or power is None:
        raise BadValue(f"'{one_line(text, 40)}' is not a size in bytes; write a number, or '512KB', '64MB', '2GB'")
    size = float(match[1]) * 1024**power
    if size > MAX_NUMBER:
        raise BadValue(f"'{one_line(text, 40)}' is too large; write a size such as '512MB', '2GB'")
    return int(size)


def check_value(setting: Setting[Any], value: Any) -> Any:
    """Return a value as plain data. Raises BadValue."""
    plain = _BY_TYPE[setting.type](setting, value)
    if setting.type in (int, float):
        _check_bounds(setting, plain)
    return plain


def parse_value(setting: Setting[Any], text: str) -> Any:
    """Parse and check the text of a command line. Raises BadValue."""
    if setting.type is bool:
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise BadValue(f"{text!r} is neither true nor false")
        return word in _TRUE
    if setting.type in (int, float) and setting.unit != "bytes":
        try:
            return check_value(setting, float(text) if setting.type is float or not _is_integer(text) else int(text))
        except ValueError as error:
            raise error if isinstance(error, BadValue) else _wrong_type(setting, text) from None
    if setting.type is dict:
        return check_value(setting, _map_from_text(text))
    if setting.type is list:
        return check_value(
            setting, _json(text) if text.lstrip().startswith("[") else [w.strip() for w in text.split(",") if w.strip()]
        )
    return check_value(setting, text)


def user_value(text: str, like: Any = None) -> Any:
    """Return what a text of a command line stands for, as the value of a key of the user's own.

    Args:
        text: the text.
        like: the value that it replaces, whose type it gets. Where that is None, the text is read as YAML reads a
            plain or quoted scalar (core schema); lists and objects are JSON.

    Raises:
        BadValue: the text has no value of that type.
    """
    if isinstance(like, str):
        return text
    if isinstance(like, bool):
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise BadValue(f"{text[:80]!r} is neither true nor false; the value before is {like!r}")
        return word in _TRUE
    value = _scalar(text)
    if like is None:
        return to_plain_data(value)
    if isinstance(like, float) and type(value) is int:
        return float(value)
    if type(value) is not type(like):
        kind = _KINDS.get(type(like), f"a {type(like).__name__}")
        raise BadValue(f"{text[:80]!r} is not {kind}; the value before is {repr(like)[:80]}")
    return to_plain_data(value)


def own_values(texts: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values of ``KEY=VALUE`` texts, each value read by ``user_value``. Raises BadValue."""
    return {key: user_value(value) for key, _, value in (text.partition("=") for text in texts)}


def _scalar(text: str) -> Any:
    bare = text.strip()
    if bare.lower() in ("", "~", "null"):
        return None if bare else text
    if bare.lower() in ("true", "false"):
        return bare.lower() == "true"
    if len(bare) <= MAX_NUMBER_TEXT:
        if re.fullmatch(r"[+-]?[0-9]+", bare, re.ASCII):
            return int(bare)
        if _YAML_FLOAT.fullmatch(bare):
            return float(bare.replace(".inf", "inf").replace(".nan", "nan"))
    if bare[0] in "[{" or (len(bare) > 1 and bare[0] == bare[-1] == '"'):
        try:
            return json.loads(bare)
        except (ValueError, RecursionError):
            return text
    if len(bare) > 1 and bare[0] == bare[-1] == "'":
        return bare[1:-1].replace("''", "'")
    return text


def to_plain_data(value: Any, depth: int = 0) -> Any:
    """A copy of ``value`` as plain data, tuples as lists. Raises BadValue for anything else."""
    if depth > MAX_DEPTH:
        raise BadValue(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise BadValue(f"{_shown(value)} does not fit into 64 bits; write it as a string")
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, list | tuple):
        return [to_plain_data(element, depth + 1) for element in value]
    if isinstance(value, Mapping):
        return {_plain_key(key): to_plain_data(element, depth + 1) for key, element in value.items()}
    raise BadValue(
        f"an object of type {type(value).__name__} is not plain data (None, bool, int, float, str, bytes, list, dict); "
        "every process reads the configuration without the topology's code, so make such objects in initialize()"
    )


def _plain_key(key: Any) -> str | int:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise BadValue(f"the key {key!r} of a dict is neither a str nor an int")
    return str.__str__(key) if isinstance(key, str) else int(key)


def _check_bool(setting: Setting[Any], value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise BadValue(f"{value!r} is not a bool; write True or False")


def _check_int(setting: Setting[Any], value: Any) -> int:
    if isinstance(value, str) and setting.unit == "bytes":
        return parse_bytes(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong_type(setting, value)
    return int(value)


def _check_float(setting: Setting[Any], value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong_type(setting, value)
    return float(value)


def _check_str(setting: Setting[Any], value: Any) -> str:
    if not isinstance(value, str):
        hint = f"one of {listing(setting.choices)}" if setting.choices else "a string"
        raise BadValue(f"{value!r} ({type(value).__name__}) should be {hint}")
    if setting is Keys.TOPOLOGY_RELIABILITY_MODE and value == "EXACTLY_ONCE":  # what others call it
        return "EFFECTIVELY_ONCE"
    if setting is Keys.TOPOLOGY_STATEFUL_CHECKPOINT_STORAGE and not value.startswith("file:///"):
        raise BadValue(f"{value!r} is not a storage URL; write file:///path of a directory that all containers share")
    if setting.choices and value not in setting.choices:
        raise BadValue(f"{value!r} is not one of {listing(setting.choices)}{did_you_mean(value, setting.choices)}")
    if setting is Keys.TOPOLOGY_PACKING or (setting is Keys.TOPOLOGY_SERIALIZER and not is_class_path(value)):
        return _plugged_in(setting, value)
    return str.__str__(value)


def _plugged_in(setting: Setting[Any], name: str) -> str:
    """A name that is offered. A serializer's becomes its ``module:Class``, so that instances need not look for it."""
    point = PACKING if setting is Keys.TOPOLOGY_PACKING else SERIALIZERS
    try:
        extension = point.find(name)
    except ExtensionError as error:
        own = "" if point is PACKING else "; a class of your own is written 'module:Class'"
        raise BadValue(error.line() + own) from None
    return extension if point is SERIALIZERS and name not in point.built_in else str.__str__(name)


def is_class_path(text: str) -> bool:
    """True if ``text`` has the form ``module:Class``."""
    return re.fullmatch(r"\w[\w\-]*(\.\w[\w\-]*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", text) is not None


def _check_dict(setting: Setting[Any], value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = _map_from_text(value)
    if not isinstance(value, Mapping):
        raise BadValue(f"{value!r} ({type(value).__name__}) is not a dict; write {{{_DICT_EXAMPLES[setting]}}}")
    check = _DICT_VALUES[setting]
    plain: dict[str, Any] = {}
    for key, element in value.items():
        if not isinstance(key, str) or not key:
            raise BadValue(f"the key {key!r} is not a name; write {{{_DICT_EXAMPLES[setting]}}}")
        plain[key] = check(key, element)
    return plain


def _cores(component: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise BadValue(f"component {component!r}: {value!r} is not a number of cores; write 0.5 or 2")
    return float(value)


def _size(component: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except BadValue as error:
            raise BadValue(f"component {component!r}: {error}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise BadValue(f"component {component!r}: {value!r} is not a size in bytes; write a number, or '512MB', '2GB'")
    return int(value)


def _variable(name: str, value: Any) -> str:
    if "=" in name or "\0" in name:
        raise BadValue(f"invalid name {name!r} of an environment variable")
    if not isinstance(value, str) or "\0" in value:
        raise BadValue(f"variable {name!r}: {value!r} is not a string; write {str(value)!r}")
    return str.__str__(value)


def _check_list(setting: Setting[Any], value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(element, str) for element in value):
        raise BadValue(f"{value!r} is not a list of strings; write {setting.default!r}")
    return list(value)


def _check_bounds(setting: Setting[Any], value: float) -> None:
    unit = f" {setting.unit}" if setting.unit else ""
    low, high = setting.minimum, MAX_NUMBER if setting.maximum is None else setting.maximum
    if low is not None and value < low:
        raise BadValue(f"{_shown(value)}{unit} is too small; the least is {low:,}{unit}".replace(",", " "))
    if value > high:
        raise BadValue(f"{_shown(value)}{unit} is too large; the most is {high:,}{unit}".replace(",", " "))


def _shown(value: float) -> str:
    """Return a number as text; for huge numbers only their size."""
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and abs(value) >= 2**64 else f"{value}"


def _wrong_type(setting: Setting[Any], value: Any) -> BadValue:
    kind = "a whole number" if setting.type is int else "a number"
    unit = f" of {_UNIT_WORDS.get(setting.unit, setting.unit)}" if setting.unit else ""
    example = setting.default if setting.default is not None else setting.minimum
    note = (
        f" (or a size such as '512MB'), for example {example}"
        if setting.unit == "bytes"
        else f", for example {example}"
    )
    return BadValue(f"{value!r} ({type(value).__name__}) is not {kind}{unit}; write {kind}{unit}{note}")


def _map_from_text(text: str) -> Any:
    """Parse JSON, or the form ``word:1GB,count:2GB`` of Heron."""
    if text.lstrip().startswith("{"):
        return _json(text)
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = part.partition(":")
        if not colon:
            raise BadValue(f"{part!r} is not NAME:VALUE; write NAME:VALUE,NAME:VALUE or a JSON object")
        pairs[name.strip()] = value.strip()
    return pairs


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadValue(f"{text!r} is not JSON: {error}") from None


def _is_integer(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


_KINDS = {int: "a whole number", float: "a number", list: "a list in JSON", dict: "an object in JSON"}
_UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "%": "percent"}
_BY_TYPE: dict[type, Callable[[Setting[Any], Any], Any]] = {
    bool: _check_bool, int: _check_int, float: _check_float, str: _check_str, dict: _check_dict, list: _check_list,
}  # fmt: skip
_DICT_VALUES: dict[Setting[Any], Callable[[str, Any], Any]] = {
    Keys.TOPOLOGY_COMPONENT_CPUMAP: _cores,
    Keys.TOPOLOGY_COMPONENT_RAMMAP: _size,
    Keys.TOPOLOGY_COMPONENT_DISKMAP: _size,
    Keys.TOPOLOGY_ENVIRONMENT: _variable,
}
_DICT_EXAMPLES: dict[Setting[Any], str] = {
    Keys.TOPOLOGY_COMPONENT_CPUMAP: "'word': 0.5",
    Keys.TOPOLOGY_COMPONENT_RAMMAP: "'word': '512MB'",
    Keys.TOPOLOGY_COMPONENT_DISKMAP: "'word': '1GB'",
    Keys.TOPOLOGY_ENVIRONMENT: "'LANG': 'C.UTF-8'",
}
