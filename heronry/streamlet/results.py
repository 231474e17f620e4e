"""Reading back what a file sink has written, for tests, demonstrations and small results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heronry.streamlet.joins import Joined
from heronry.streamlet.program import KeyValue, Matched, Windowed


def finished(path: str | Path) -> bool:
    """True when every task of every sink that writes here has said that no more will come (``_final-…-of-N``)."""
    groups: Counter[tuple[str, int]] = Counter()  # the number of tasks may have changed on the way
    for mark in Path(path).glob("_final-*-of-*"):
        name, _, of = mark.name.rpartition("-of-")
        groups[name.removeprefix("_final-").rpartition("-")[0], int(of)] += 1
    whole = {step for (step, of), there in groups.items() if there == of}
    return bool(groups) and whole == {step for step, _ in groups}


def read(path: str | Path) -> list[Any]:
    """The records of a JSON sink, in the order in which each task wrote them; results of reducers as named tuples."""
    found = []
    for file in sorted(_seen(Path(path))):
        # Lines end with "\n" alone: what splitlines() takes for an end may stand in a text.
        found += [_named(json.loads(line)) for line in file.read_bytes().split(b"\n") if line]
    return found


def _seen(path: Path) -> Iterator[Path]:
    """Files of a sink, also those in folders by a field."""
    for file in path.rglob("*.json"):
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
            yield file


def latest(records: Iterable[Any]) -> list[Any]:
    """Of running results the last one for each key (and window)."""
    last: dict[Any, Any] = {}
    for record in records:
        name = (record.key, record.start) if isinstance(record, Windowed) else record.key
        last[_hashable(name)] = record
    return list(last.values())


def _named(record: Any) -> Any:
    if isinstance(record, dict):
        if record.keys() == {"key", "value"}:
            return KeyValue(_hashable(record["key"]), record["value"])
        if record.keys() == {"key", "start", "end", "value"}:
            return Windowed(_hashable(record["key"]), record["start"], record["end"], record["value"])
        if record.keys() == {*Matched._fields}:
            return Matched(**record)
        if record.keys() == {*Joined._fields}:
            return Joined(**{**record, "key": _hashable(record["key"])})
    return record


def _hashable(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
