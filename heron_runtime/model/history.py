"""History of a topology: rows of metrics and events, and the names of their files.

A folder holds one submission of a topology: ``HISTORY/CLUSTER/ROLE/ENV/NAME/ID/``, and in it::

    topology.json                              identity, graph and parallelism of the topology (``TopologySummary``)
    metrics/10s/date=2026-11-25/c1-17.parquet  rows as a metrics manager wrote them: container 1, its 17th file
    metrics/1m/date=2026-11-25/…               rolled up, one folder of a day replaced at a time; also 10m, 1h, 1d
    metrics/10s/date=2026-11-25/c1-3-17.parquet   rows of the 3rd to the 17th file of that day, compacted
    events/date=2026-11-25/c1-17.parquet       exceptions of user code, plan changes, pressure, checkpoints, restores

The day of a file is that of its newest row. A row that had to wait for space on a disk may be older. The manifest of a
rolled-up day lists the raw files that it includes. A level and the raw files that it does not include are therefore
complete together.

The name of a compacted file defines its contents: *every* file of its container, kind and day from the first number to
the last that existed. The rename that gives it its name replaces all of them at once: readers that see it ignore the
files within its span (``covering``), even if they are not removed yet. Numbers of a container only increase, so a span
cannot gain files later. Manifests list a compacted file under the name of the last file in it (``held_as``), since a
level includes either all of a compacted file or nothing.

A row aggregates a *series* (metric of an instance) within a bucket of time. Two rows of one series and bucket add up to
one (``MetricRow.add``): sums, counts and bins of sketches are added, and the minimum, the maximum and the later last
value are kept. This is associative and commutative, so the split of rows over files, the order of files and earlier
additions do not affect the result.

**Exact sums.** Adding floats in another order may give another sum. Totals of counters are therefore rounded
(``exact``) before they are subtracted: below 2^42 to multiples of 2^-10, beyond to whole numbers. All sums of such
numbers are exact as long as they stay below 2^43 (whole numbers: 2^53), and the increments of a counter always sum up
to its rounded total.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

HISTORY = "history"  # folder in a home
METRICS, EVENTS, ABOUT = "metrics", "events", "topology.json"
AUDIT_FOLDER = ".audit"  # folder in a history, for all its topologies: day folders, with one column more than events
TOPOLOGY = "topology"
MANIFEST, TAKEN = "_heronry.json", "taken"  # file of a rolled-up day, and its key with the names of included raw files
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
    """Aggregate of a series within a bucket. ``start_ms`` is the start of the bucket, in milliseconds since 1970 UTC.

    For a counter, ``sum`` is its growth. For a gauge, ``sum`` is the sum of ``count`` values, and ``low``, ``high`` and
    ``last`` are the least, greatest and last value. For a latency, ``bins`` are the counts of its sketch
    (``heron_runtime.model.sketch``) and ``count`` is the number of values.
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
        """Key of the row. Rows with the same key are added up."""
        return (self.start_ms, self.container, self.component, self.instance, self.metric, self.kind)

    def add(self, other: MetricRow) -> None:
        """Add another row with the same key to this one."""
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
    """Event in the history. ``kind`` is one of ``KINDS``.

    ``count`` events are recorded as one; ``time_ms`` is the time of the last, in milliseconds since 1970. ``text`` is
    for users. ``detail`` is the traceback of an exception, and JSON for all other kinds.
    """

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
    """Submission of a topology, which identifies its folder in the history."""

    cluster: str
    role: str
    environ: str
    topology: str
    id: str

    @property
    def path(self) -> str:
        """Path below the folder of the history."""
        return "/".join((self.cluster, self.role, self.environ, self.topology, self.id))

    @property
    def target(self) -> str:
        """Target in the form that commands take before the name: `cluster/role/environ`."""
        return f"{self.cluster}/{self.role}/{self.environ}"


@dataclass(frozen=True, slots=True)
class ComponentSummary:
    """Component in the newest plan. ``inputs`` holds component and stream of each input."""

    name: str
    is_spout: bool
    parallelism: int
    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TopologySummary:
    """Contents of `topology.json`: the last known topology. `plan` is the version of its physical plan."""

    submitted_at: float
    plan: str
    containers: int
    parts: tuple[ComponentSummary, ...]

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> TopologySummary:
        """Parse the file. Raises ValueError, KeyError or TypeError if it is invalid."""
        document: dict[str, Any] = json.loads(text)
        parts = tuple(
            ComponentSummary(
                p["name"], bool(p["is_spout"]), int(p["parallelism"]), tuple((a, b) for a, b in p["inputs"])
            )
            for p in document["parts"]
        )
        return cls(float(document["submitted_at"]), str(document["plan"]), int(document["containers"]), parts)


def exact(total: float) -> float:
    """Return the total of a counter, rounded so that sums of differences are exact; 0 for NaN."""
    if not math.isfinite(total):
        return 0.0
    return round(total * _FINE) / _FINE if abs(total) < _FINE_BELOW else float(round(total))


def bucket(time_ms: int, level: str) -> int:
    """Return the start of the bucket of ``level`` that contains this time, in milliseconds since 1970."""
    return time_ms - time_ms % LEVEL_MS[level]


def date_of(time_ms: int) -> str:
    """Return the day (UTC) of a time in the form used in folder names: ``2026-11-25``."""
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=time_ms)).date().isoformat()


def day_folder(date: str) -> str:
    """Return the folder name of a day."""
    return f"date={date}"


def file_name(container: int, number: int) -> str:
    """Return the name of the `number`-th file of the metrics manager of a container."""
    return f"c{container}-{number}{SUFFIX}"


def compacted_name(container: int, first: int, last: int) -> str:
    """Return the name of the file that replaces all files of a container and day in this range of numbers."""
    return f"c{container}-{first}-{last}{SUFFIX}"


def span_of(name: str) -> tuple[int, int, int] | None:
    """Return container, first and last number of a file, or None for a name of another kind."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    container, first, last = match.groups()
    return int(container), int(first), int(last or first)


def number_of(name: str, container: int) -> int | None:
    """Return the last number in a file name, or None for a name of another kind or container."""
    span = span_of(name)
    return span[2] if span is not None and span[0] == container else None


def held_as(name: str) -> str:
    """Return the name under which the manifest of a rolled-up day lists this raw file."""
    span = span_of(name)
    return file_name(span[0], span[2]) if span is not None else name


def covering(names: Iterable[str]) -> list[str]:
    """Return the files of a day, in order, that together hold every row once.

    Files within the span of another file are left out.
    """
    names_kept: list[str] = []
    reach: dict[int, int] = {}  # container to the last number that is covered
    every = {name: span_of(name) for name in names}
    spans = [(span, name) for name, span in every.items() if span is not None]
    for (container, _, last), name in sorted(spans, key=lambda item: (item[0][0], item[0][1], -item[0][2])):
        if last > reach.get(container, -1):
            names_kept.append(name)
            reach[container] = last
    return sorted(name for name, span in every.items() if span is None) + names_kept


def roll_up(rows: list[MetricRow], level: str) -> list[MetricRow]:
    """Aggregate rows of finer levels to rows of a level, in order of keys.

    This is the plain Python equivalent of the job on Spark.
    """
    rows_by_key: dict[Key, MetricRow] = {}
    for row in rows:
        start = bucket(row.start_ms, level)
        fresh = MetricRow(start, *row.key[1:])
        rows_by_key.setdefault(fresh.key, fresh).add(row)
    return [rows_by_key[key] for key in sorted(rows_by_key)]


def _best(choose: Any, one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return float(choose(one, other))
