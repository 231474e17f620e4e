"""What is kept of a topology for later: rows of metrics and events, and where their files lie.

A folder holds one submission of a topology: ``HISTORY/CLUSTER/ROLE/ENV/NAME/ID/``, and in it::

    topology.json                              who it is, its graph and parallelism (``TopologySummary``)
    metrics/10s/date=2026-11-25/c1-17.parquet  rows as a metrics manager wrote them: container 1, its 17th file
    metrics/1m/date=2026-11-25/…               rolled up, one folder of a day replaced at a time; 10m, 1h, 1d alike
    metrics/10s/date=2026-11-25/c1-3-17.parquet   what the 3rd to the 17th of that day held, compacted
    events/date=2026-11-25/c1-17.parquet       exceptions of user code, plan changes, pressure, checkpoints, restores

The day of a file is that of its newest row; a row that had to wait for room on a disk may be older. A rolled-up day
lists in its manifest which raw files it holds, so a level together with the raw files it does not hold is all there is.

A compacted file says by its name what it is made of: *every* file of its container, kind and day from the first number
to the last that was there. So the rename that gives it its name puts it in place of all of them at once: whoever sees
it does not look at files within its span any more (``covering``), whether they are removed already or not. Numbers of a
container only grow, so no file can come into a span later. In manifests it goes by the name of the last file in it
(``held_as``), since a level holds all of a compacted file or nothing.

A row says what a *series* (metric of an instance) did within a bucket of time, and two rows of one series and bucket
add up to one (``MetricRow.add``): sums, counts and bins of sketches add; minimum, maximum and the later last value win.
This is associative and commutative, so the split of rows over files, the order of files and earlier additions do not
matter.

**Exact sums.** Adding floats in another order may give another sum. Totals of counters are therefore rounded
(``exact``) before they are subtracted: below 2^42 to multiples of 2^-10, beyond to whole numbers. All sums of such
numbers are exact as long as they stay below 2^43 (whole numbers: 2^53), and the growths of a counter sum up to its
rounded total, whatever lies between.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

HISTORY = "history"  # of a home
METRICS, EVENTS, ABOUT = "metrics", "events", "topology.json"
AUDIT_FOLDER = ".audit"  # of a history, of all its topologies: days, with a column more than events have
TOPOLOGY = "topology"
MANIFEST, TAKEN = "_heronry.json", "taken"  # of a rolled-up day, and in it the names of the raw files it holds
RAW = "10s"
LEVEL_MS: Mapping[str, int] = {"10s": 10_000, "1m": 60_000, "10m": 600_000, "1h": 3_600_000, "1d": 86_400_000}
ROLLED = tuple(level for level in LEVEL_MS if level != RAW)
DAY_MS = LEVEL_MS["1d"]
SUFFIX = ".parquet"
EVENT_COLUMNS = ("time_ms", "kind", "container", "component", "instance", "count", "text", "detail")
EXCEPTION, PLAN, PRESSURE, CHECKPOINT, RESTORE, AUDIT = (
    "exception",
    "plan",
    "pressure",
    "checkpoint",
    "restore",
    "audit",
)
KINDS = (EXCEPTION, PLAN, PRESSURE, CHECKPOINT, RESTORE, AUDIT)  # of events
_FINE, _FINE_BELOW = 1024.0, 2.0**42
_NAME = re.compile(rf"c(\d+)-(\d+)(?:-(\d+))?{re.escape(SUFFIX)}", re.ASCII)

Key = tuple[int, int, str, str, str, str]  # start_ms, container, component, instance, metric, kind


@dataclass(slots=True)
class MetricRow:
    """A series within a bucket. ``start_ms``: when the bucket began, milliseconds since 1970 UTC.

    A counter has its growth as ``sum``; a gauge the sum of its ``count`` values, the least, greatest and last one; a
    latency how many values each bin of its sketch counted (``heron_runtime.model.sketch``), their number as ``count``.
    """

    start_ms: int
    container: int
    component: str
    instance: str
    metric: str
    kind: str
    count: float = 0.0
    sum: float = 0.0
    low: float | None = None
    high: float | None = None
    last: float | None = None
    last_ms: int | None = None
    bins: dict[int, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What rows have in common that add up to one."""
        return (self.start_ms, self.container, self.component, self.instance, self.metric, self.kind)

    def add(self, other: MetricRow) -> None:
        """Take another row of the same key in."""
        self.count += other.count
        self.sum += other.sum
        self.low = _best(min, self.low, other.low)
        self.high = _best(max, self.high, other.high)
        if other.last_ms is not None and other.last is not None:
            if self.last_ms is None or self.last is None:
                self.last_ms, self.last = other.last_ms, other.last
            else:
                self.last_ms, self.last = max((self.last_ms, self.last), (other.last_ms, other.last))
        for key, count in other.bins.items():
            self.bins[key] = self.bins.get(key, 0.0) + count


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """Something that happened: ``kind`` is one of ``KINDS``. ``count``: so many are told as one, of which the last was
    at ``time_ms``. ``text`` is for people; ``detail`` is the traceback of an exception, JSON for all others."""

    time_ms: int
    kind: str
    container: int
    component: str
    instance: str
    count: int
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SubmissionPath:
    """Whose history a folder is: one submission of a topology."""

    cluster: str
    role: str
    environ: str
    topology: str
    id: str

    @property
    def path(self) -> str:
        """Below the history's folder."""
        return "/".join((self.cluster, self.role, self.environ, self.topology, self.id))

    @property
    def target(self) -> str:
        """As commands take it, in front of the name."""
        return f"{self.cluster}/{self.role}/{self.environ}"


@dataclass(frozen=True, slots=True)
class ComponentSummary:
    """A component as the newest plan had it. ``inputs``: (component, stream) of each."""

    name: str
    is_spout: bool
    parallelism: int
    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologySummary:
    """What ``topology.json`` says: the topology as it was last seen. ``plan`` is the version of its physical plan."""

    submitted_at: float
    plan: str
    containers: int
    parts: tuple[ComponentSummary, ...]

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> TopologySummary:
        """Raises ValueError, KeyError, TypeError for what is no such file."""
        found: dict[str, Any] = json.loads(text)
        parts = tuple(
            ComponentSummary(
                p["name"], bool(p["is_spout"]), int(p["parallelism"]), tuple((a, b) for a, b in p["inputs"])
            )
            for p in found["parts"]
        )
        return cls(float(found["submitted_at"]), str(found["plan"]), int(found["containers"]), parts)


def exact(total: float) -> float:
    """The total of a counter, rounded so that sums of differences are exact; nought for what is no number."""
    if not math.isfinite(total):
        return 0.0
    return round(total * _FINE) / _FINE if abs(total) < _FINE_BELOW else float(round(total))


def bucket(time_ms: int, level: str) -> int:
    """When the bucket of ``level`` began that holds this instant."""
    return time_ms - time_ms % LEVEL_MS[level]


def date_of(time_ms: int) -> str:
    """The day (UTC) of an instant, as folders are named: ``2026-11-25``."""
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=time_ms)).date().isoformat()


def day_folder(date: str) -> str:
    """The folder of a day."""
    return f"date={date}"


def file_name(container: int, number: int) -> str:
    """Of the ``number``-th file of a container's metrics manager."""
    return f"c{container}-{number}{SUFFIX}"


def compacted_name(container: int, first: int, last: int) -> str:
    """Of the file that stands for all files of a container and day with these numbers and those between."""
    return f"c{container}-{first}-{last}{SUFFIX}"


def span_of(name: str) -> tuple[int, int, int] | None:
    """Container, first and last number of a file; None for a name of another kind."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    container, first, last = found.groups()
    return int(container), int(first), int(last or first)


def number_of(name: str, container: int) -> int | None:
    """The last number in such a name; None for a name of another kind or container."""
    span = span_of(name)
    return span[2] if span is not None and span[0] == container else None


def held_as(name: str) -> str:
    """The name by which a rolled-up day that holds this raw file lists it."""
    span = span_of(name)
    return file_name(span[0], span[2]) if span is not None else name


def covering(names: Iterable[str]) -> list[str]:
    """Of the names of a day's files, in order, those that together hold every row once: those within the span of
    another one are left out."""
    kept: list[str] = []
    reach: dict[int, int] = {}  # container to the last number that is covered
    every = {name: span_of(name) for name in names}
    spans = [(span, name) for name, span in every.items() if span is not None]
    for (container, _, last), name in sorted(spans, key=lambda item: (item[0][0], item[0][1], -item[0][2])):
        if last > reach.get(container, -1):
            kept.append(name)
            reach[container] = last
    return sorted(name for name, span in every.items() if span is None) + kept


def roll_up(rows: list[MetricRow], level: str) -> list[MetricRow]:
    """The rows of a level, of rows of finer ones: what the job on Spark computes, in plain Python. In order of keys."""
    found: dict[Key, MetricRow] = {}
    for row in rows:
        start = bucket(row.start_ms, level)
        fresh = MetricRow(start, *row.key[1:])
        found.setdefault(fresh.key, fresh).add(row)
    return [found[key] for key in sorted(found)]


def _best(choose: Any, one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return float(choose(one, other))
