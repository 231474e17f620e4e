"""The api server's record of who did what, as rows of the history: which lines, each as often as it was written.

Theory of operation. The record is the api server's own: lines of JSON, rotated (``docs/how-to/apiserver.md``). A run
reads all
that is there and adds, for each day, what the history does not have yet. Lines carry no number, so a day is a bag of
lines: of each line as many as the day has or as are found now, whichever is more. So a run that is repeated, or reads a
file that an earlier one has read, changes nothing; and what has been rotated away stays.
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
    """A line, itself the ``event.detail``. ``topology``: CLUSTER/ROLE/ENV/NAME, empty where it is about none."""

    event: HistoryEvent
    topology: str


def read_line(line: str) -> Written | None:
    """What a line says; None for one that is none of the record's."""
    try:
        found = json.loads(line)
        at = datetime.fromisoformat(found["at"])
        time_ms = round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
        topology, count = str(found.get("topology", "")), int(found.get("repeats", 1))
        what, who, source, result = (str(found[name]) for name in ("what", "who", "from", "result"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    place = f" from {source}" if source else ""
    about = f" {topology}" if topology else ""
    message = f": {found['message']}" if found.get("message") else ""
    text = f"{what}{about} by {who}{place}: {result}{message}"
    return Written(HistoryEvent(time_ms, AUDIT, 0, "", who, count, text, line), topology)


def by_day(lines: Iterable[str]) -> tuple[dict[str, Counter[str]], int]:
    """The bag of each day, and how many lines were none."""
    days: dict[str, Counter[str]] = {}
    strange = 0
    for line in lines:
        found = read_line(line)
        if found is None:
            strange += 1
        else:
            days.setdefault(date_of(found.event.time_ms), Counter())[line] += 1
    return days, strange


def merged(there: Mapping[str, int], found: Mapping[str, int]) -> Counter[str]:
    """What a day is to hold."""
    return Counter(there) | Counter(found)
