"""Which file a line is from, when its name did not travel with it.

Theory of operation. A column with the name of each line's file costs a word count 7 % of its time, and is looked at
only when a record fails. So lines come alone. Whoever fails says where the line stood: the source, the number of the
task's partition, and a hash of the line. The driver finds the file by these (``shell/origin.py``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PREFIX = "heronry-line:"


@dataclass(frozen=True)
class Trace:
    """A line of a source step. ``partition`` is that of the task; ``digest`` the line's SHA-1, in hexadecimal."""

    source: str
    partition: int
    digest: str

    def __str__(self) -> str:
        return f"{_PREFIX}{self.partition}:{self.digest}:{self.source}"


def trace_in(text: str) -> Trace | None:
    """The trace that stands in the place of a file's name, if it is one."""
    if not text.startswith(_PREFIX):
        return None
    partition, digest, source = text.removeprefix(_PREFIX).split(":", 2)
    return Trace(source, int(partition), digest)


class Traced:
    """A column in the place of the files' names; ``lines`` are the batch's, as bytes or as the text they are."""

    def __init__(self, source: str, partition: int, lines: Sequence[bytes] | Sequence[str]) -> None:
        self._source, self._partition, self._lines = source, partition, lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._named(line) for line in self._lines[place]]
        return self._named(self._lines[place])

    def _named(self, line: bytes | str) -> str:
        data = line.encode() if isinstance(line, str) else line
        return str(Trace(self._source, self._partition, hashlib.sha1(data, usedforsecurity=False).hexdigest()))
