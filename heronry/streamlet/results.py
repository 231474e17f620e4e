"""Reader of the output of file sinks, for tests, demonstrations and small results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heronry.streamlet.joins import Joined
from heronry.streamlet.program import KeyValue, Matched, Windowed


def finished(path: str | Path) -> bool:
    """Return True if every task of every sink that writes here has marked its end (``_final-…-of-N``)."""
    groups: Counter[tuple[str, int]] = Counter()  # the number of tasks may have changed while it ran
    for mark in Path(path).glob("_final-*-of-*"):
        name, _, of = mark.name.rpartition("-of-")
        groups[name.removeprefix("_final-").rpartition("-")[0], int(of)] += 1
    whole = {step for (step, of), there in groups.items() if there == of}
    return bool(groups) and whole == {step for step, _ in groups}


def read(path: str | Path) -> list[Any]:
    """Return the records of a JSON sink, in the order in which each task wrote them.

    Results of reducers are named tuples.
    """
    rows = []
    for file in sorted(_seen(Path(path))):
        # Lines end only with "\n". Other characters that splitlines() treats as line ends may occur in a text.
        rows += [_named(json.loads(line)) for line in file.read_bytes().split(b"\n") if line]
    return rows


def _seen(path: Path) -> Iterator[Path]:
    """Yield the files of a sink, including those in folders by field values."""
    for file in path.rglob("*.json"):
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
            yield file


def latest(records: Iterable[Any]) -> list[Any]:
    """Return the last running result for each key (and window)."""
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
    """Return lists as tuples, which JSON does not have."""
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
