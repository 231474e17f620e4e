"""Rows of the history for the API server's audit log, each line as often as it was written.

The API server writes the log as lines of JSON and rotates it (``docs/how-to/apiserver.md``). A run reads all existing
lines and adds, for each day, those that the history does not have yet. Lines are not numbered, so a day is a multiset
of lines. Each line counts as often as in the stored day or in the files, whichever is more. A repeated run, or a file
that an earlier run has read, therefore changes nothing. Lines that were rotated away stay in the history.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from heron_runtime.model.history import AUDIT, HistoryEvent, date_of


@dataclass(frozen=True, slots=True)
class Written:
    """Line of the log, with its text in ``event.detail``. ``topology`` is CLUSTER/ROLE/ENV/NAME, or empty."""

    event: HistoryEvent
    topology: str


def read_line(line: str) -> Written | None:
    """Parse a line of the log; return None if the line is invalid."""
    try:
        document = json.loads(line)
        at = datetime.fromisoformat(document["at"])
        time_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        topology, count = str(document.get("topology", "")), int(document.get("repeats", 1))
        what, who, source, result = (str(document[name]) for name in ("what", "who", "from", "result"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    place = f" from {source}" if source else ""
    about = f" {topology}" if topology else ""
    message = f": {document['message']}" if document.get("message") else ""
    text = f"{what}{about} by {who}{place}: {result}{message}"
    return Written(HistoryEvent(time_ms, AUDIT, 0, "", who, count, text, line), topology)


def by_day(lines: Iterable[str]) -> tuple[dict[str, Counter[str]], int]:
    """Return the multiset of lines of each day, and the number of invalid lines."""
    days: dict[str, Counter[str]] = {}
    strange = 0
    for line in lines:
        entry = read_line(line)
        if entry is None:
            strange += 1
        else:
            days.setdefault(date_of(entry.event.time_ms), Counter())[line] += 1
    return days, strange


def merged(there: Mapping[str, int], counts: Mapping[str, int]) -> Counter[str]:
    """Return the multiset of lines that a day has to hold."""
    return Counter(there) | Counter(counts)
