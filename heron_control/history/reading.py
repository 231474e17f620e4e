"""Rows of history by SQL: one submission of a topology, through DuckDB, without a server or Spark.

A question names a span and gets the coarsest level whose points are short enough, joined with the raw files that are
not rolled up yet (``heron_runtime.history_folder.files_of``). So it covers all data, rolled up or not. If a day is
replaced while it is read, the read is repeated.

DuckDB is an optional dependency, imported with the first question. Its extensions are disabled, so nothing is ever
downloaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heron_control.history.advice import ComponentLoad, TaskLoad
from heron_runtime.failures import NotFound, Unavailable, UsageError, did_you_mean, listing
from heron_runtime.files import entries
from heron_runtime.history_folder import dates, files_between, files_of, places, read_about
from heron_runtime.model.history import (
    AUDIT_FOLDER,
    DAY_MS,
    EVENT_COLUMNS,
    EVENTS,
    KINDS,
    LEVEL_MS,
    METRICS,
    RAW,
    TOPOLOGY,
    HistoryEvent,
    SubmissionPath,
    TopologySummary,
)
from heron_runtime.model.metrics import split_name
from heron_runtime.model.sketch import Sketch

ATTEMPTS = 5
THREADS, MEMORY = 2, "512MB"
MAX_POINTS = 100_000
MAX_EVENTS = 1000
LAST_MS = 2**53


@dataclass(frozen=True, slots=True)
class Point:
    """Series within one step of time.

    Growth of a counter as ``total``; minimum, maximum, mean and last value of a gauge; distribution of a latency.
    ``series`` is (component, instance, metric, kind), with "" where several were combined.
    """

    start_ms: int
    series: tuple[str, str, str, str]
    count: float
    total: float
    low: float | None
    high: float | None
    last: float | None
    sketch: Sketch | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Selection and grouping of rows. Empty names select all.

    ``step_ms`` is the length of a point. The span covers all points that it touches.
    """

    from_ms: int
    to_ms: int
    step_ms: int
    component: str = ""
    instance: str = ""
    metrics: tuple[str, ...] = ()  # names with or without a key
    by_instance: bool = False


@dataclass(frozen=True, slots=True)
class Events:
    """Selection of events: the newest ``limit`` after skipping ``offset``. No kinds select all."""

    kinds: frozenset[str] = frozenset()
    from_ms: int | None = None
    to_ms: int | None = None
    limit: int = MAX_EVENTS
    offset: int = 0


class History:
    """History of one submission in its ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = SubmissionPath(*folder.parts[-5:])

    def span(self) -> tuple[int, int] | None:
        """Return the first and last whole day with rows (ms), or None."""
        days = sorted(d for level in LEVEL_MS for d in dates(self.folder / METRICS / level))
        if not days:
            return None
        return _start_of(days[0]), _start_of(days[-1]) + DAY_MS

    def times(self) -> tuple[int, int] | None:
        """Return the first and last bucket with rows, or None. Raises as ``points``."""
        whole = self.span()
        if whole is None:
            return None
        (times,) = self._ask(RAW, whole[0] - DAY_MS, whole[1], ["SELECT min(start_ms), max(start_ms) FROM {rows}"]) or (
            [(None, None)],
        )
        first, last = times[0]
        if first is not None:
            return int(first), int(last) + LEVEL_MS[RAW]
        return whole

    def points(self, question: Question) -> list[Point]:
        """Return the points in order of time and series.

        Raises:
            Unavailable: DuckDB is missing or a file cannot be read.
            UsageError: There are too many points.
        """
        level, step = level_for(question.step_ms), question.step_ms
        first, last = question.from_ms - question.from_ms % step, question.to_ms + -question.to_ms % step
        whose = "instance" if question.by_instance else "''"
        where, values = _where(question)
        start = f"start_ms - start_ms % {step:d}"
        group = f"SELECT {start} AS at_ms, component, {whose} AS whose, metric, kind"
        plain = (
            f"{group}, sum(count), sum(sum), min(low), max(high), arg_max(last, last_ms) FROM {{rows}} AND {where} "
            f"GROUP BY ALL ORDER BY ALL LIMIT {MAX_POINTS + 1}"
        )
        binned = (
            f"SELECT at_ms, component, whose, metric, kind, bin, sum(n) FROM ({group}, unnest(bins) AS bin, "
            f"unnest(counts) AS n FROM {{rows}} AND kind = 'latency' AND {where}) GROUP BY ALL"
        )
        answers = self._ask(level, first, last, [plain, binned], values)
        if not answers:
            return []
        points, bins = answers
        if len(points) > MAX_POINTS:
            raise UsageError(
                f"more than {MAX_POINTS} points", "Ask for one component or metric, a shorter time, or longer steps."
            )
        sketches: dict[tuple[Any, ...], dict[int, float]] = {}
        for *key, bin_, count in bins:
            sketches.setdefault(tuple(key), {})[bin_] = count
        return [
            Point(at, (c, i, m, k), count, total, low, high, last, _sketch(sketches.get((at, c, i, m, k))))
            for at, c, i, m, k, count, total, low, high, last in points
        ]

    def events(self, selection: Events | None = None) -> list[HistoryEvent]:
        """Return the newest events, newest first; all of them by default.

        Includes entries of the API server's record about this submission, once rolled up.

        Raises:
            UsageError: An event kind is unknown.
            Unavailable: DuckDB is missing or a file cannot be read.
        """
        selection = selection or Events()
        if strange := selection.kinds - set(KINDS):
            raise UsageError(f"unknown event kind {listing(sorted(strange))}", f"Use one of {', '.join(KINDS)}.")
        first, last = selection.from_ms or 0, LAST_MS if selection.to_ms is None else selection.to_ms
        began, ended = self._life()
        kinds = f" AND kind IN ({', '.join(map(_text, sorted(selection.kinds)))})" if selection.kinds else ""
        span = f"time_ms >= {first:d} AND time_ms < {last:d}{kinds}"
        about = f"{TOPOLOGY} = {_text(f'{self.place.target}/{self.place.topology}')}"
        mine = f"{span} AND {about} AND time_ms >= {began:d} AND time_ms < {ended:d}"
        wanted = ((self.folder / EVENTS, span), (self.folder.parents[4] / AUDIT_FOLDER, mine))
        page = f"ORDER BY time_ms DESC, kind, text LIMIT {selection.limit:d} OFFSET {selection.offset:d}"

        def queries() -> list[str]:
            files = [(files_between(folder, first, last), where) for folder, where in wanted]
            columns = ", ".join(EVENT_COLUMNS)
            parts = [f"SELECT {columns} FROM {_parquet(paths)} WHERE {where}" for paths, where in files if paths]
            return [f"SELECT * FROM ({' UNION ALL '.join(parts)}) {page}"] if parts else []

        (rows,) = self._answers(queries) or ([],)
        return [HistoryEvent(*row) for row in rows]

    def _life(self) -> tuple[int, int]:
        """Return the time from this submission to the next one of the name (ms)."""
        began = _submitted_at(self.folder)
        later = [at for other in entries(self.folder.parent) if (at := _submitted_at(other)) > began]
        return round(began * 1000), round(min(later) * 1000) if later else LAST_MS

    def _ask(
        self, level: str, from_ms: int, to_ms: int, queries: Iterable[str], values: Iterable[str] = ()
    ) -> list[list[tuple[Any, ...]]]:
        """Return the results of each query over the same rows (``{rows}``, which ends in a condition).

        Raises:
            Unavailable: DuckDB is missing or a file cannot be read.
        """
        span = f" WHERE start_ms >= {from_ms:d} AND start_ms < {to_ms:d}"

        def now() -> list[str]:
            files = files_of(self.folder, level, from_ms, to_ms)
            return [query.format(rows=_parquet(files) + span) for query in queries] if files else []

        return self._answers(now, values)

    def _answers(self, queries: Callable[[], list[str]], values: Iterable[str] = ()) -> list[list[tuple[Any, ...]]]:
        """Return the results of queries that name files; repeat them if the files have changed meanwhile."""
        with _duck() as duck:
            for attempt in range(ATTEMPTS):
                questions = queries()
                if not questions:
                    return []
                try:
                    answers = [duck.execute(query, list(values)).fetchall() for query in questions]
                except Exception as error:
                    if not _is_ducks(error) or attempt == ATTEMPTS - 1:
                        raise Unavailable(f"the history in {self.folder} cannot be read: {error}") from error
                else:
                    if questions == queries():
                        return answers
        raise Unavailable(f"the history in {self.folder} keeps changing; try again", "Try again.")


def level_for(step_ms: int) -> str:
    """Return the coarsest level for points of this length.

    Raises:
        UsageError: The length is not a multiple of any level.
    """
    fits = [level for level, ms in LEVEL_MS.items() if step_ms > 0 and step_ms % ms == 0]
    if not fits:
        raise UsageError(f"a step of {step_ms} ms is not a multiple of {LEVEL_MS[RAW] // 1000} seconds")
    return fits[-1]


def find(root: Path, name: str, id_: str = "") -> SubmissionPath:
    """Return the newest submission of ``[CLUSTER/ROLE/ENV/]NAME`` below ``root``, or that of an id.

    Raises:
        NotFound: It has not been recorded.
        UsageError: The name is ambiguous.
    """
    every = list(places(root))
    *prefix, topology = name.split("/")
    target = "/".join(prefix)
    submissions = [place for place in every if place.topology == topology and (not prefix or place.target == target)]
    if prefix and len(prefix) != 3:
        raise UsageError(f"invalid topology {name!r}", "Write NAME or CLUSTER/ROLE/ENV/NAME.")
    if not submissions:
        hint = did_you_mean(topology, {place.topology for place in every})
        raise NotFound(
            f"no history of {name!r} in {root}{hint}",
            "Submit it with --config-property heron.history.enabled=true.",
        )
    if id_:
        submissions = [place for place in submissions if place.id == id_]
        if not submissions:
            raise NotFound(f"{name!r} has no history of a submission {id_!r}", "`heron pipeline history` lists them.")
    targets = sorted({place.target for place in submissions})
    if len(targets) > 1:
        raise UsageError(f"{name!r} has a history at {listing(targets)}", f"Name one: {targets[0]}/{name}.")
    return max(submissions, key=lambda place: (_submitted_at(root / place.path), place.id))


def newest_first(root: Path, submissions: Iterable[SubmissionPath]) -> list[tuple[SubmissionPath, float]]:
    """Return submissions with the time of their submission, newest first."""
    return sorted(((place, _submitted_at(root / place.path)) for place in submissions), key=lambda p: -p[1])


def _submitted_at(folder: Path) -> float:
    about = read_about(folder)
    return about.submitted_at if about is not None else min((e.stat().st_mtime for e in entries(folder)), default=0.0)


def _where(question: Question) -> tuple[str, list[str]]:
    parts, values = ["true"], []
    for column, value in (("component", question.component), ("instance", question.instance)):
        if value:
            parts.append(f"{column} = ?")
            values.append(value)
    if question.metrics:
        parts.append("(" + " OR ".join(["metric = ? OR starts_with(metric, ?)"] * len(question.metrics)) + ")")
        values += [text for name in question.metrics for text in (name, f"{name}/")]
    return " AND ".join(parts), values


def _sketch(bins: dict[int, float] | None) -> Sketch | None:
    return Sketch(bins) if bins else None


def _parquet(paths: Iterable[Path]) -> str:
    return f"read_parquet([{', '.join(_text(str(path)) for path in paths)}])"


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _start_of(date: str) -> int:
    import datetime as dt

    return round(dt.datetime.fromisoformat(date).replace(tzinfo=dt.UTC).timestamp() * 1000)


def _is_ducks(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb")


@contextmanager
def _duck() -> Iterator[Any]:
    try:
        import duckdb
    except ImportError:
        raise Unavailable(
            "the history of topologies is read by duckdb, which is not installed here",
            "Run: pip install 'heronry[history]'",
        ) from None
    config = {
        "threads": THREADS, "memory_limit": MEMORY, "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }  # fmt: skip
    connection = duckdb.connect(":memory:", config=config)
    try:
        yield connection
    finally:
        connection.close()


EXECUTED, EMITTED = "__execute-count", "__emit-count"
BUSY, IDLE, HELD = "__busy-time-ms", "__idle-time-ms", "__backpressured-time-ms"
CAUSED = "__time_spent_back_pressure_by_compid"
CPU = ("__py-user-cpu-time-secs", "__py-sys-cpu-time-secs")
PHYSICAL_MEMORY = "__py-physical-memory-byte"
STEP_MS = LEVEL_MS["1m"]


def loads(history: History, about: TopologySummary, from_ms: int, to_ms: int) -> list[ComponentLoad]:
    """Return the work of each current component within a span of time. Raises as ``History.points``."""
    names = (EXECUTED, EMITTED, BUSY, IDLE, HELD, CAUSED, *CPU, PHYSICAL_MEMORY)
    question = Question(from_ms, to_ms, STEP_MS, metrics=names, by_instance=True)
    points = history.points(question)
    caused: dict[str, float] = defaultdict(float)
    ours: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        component, _, metric, _ = point.series
        base = split_name(metric)
        if base.base == CAUSED:
            caused[base.key] += point.total / 1000
        else:
            ours[component].append(point)
    first = from_ms - from_ms % STEP_MS
    results = []
    for part in about.parts:
        counted = EMITTED if part.is_spout else EXECUTED
        mine = ours[part.name]
        edges: dict[str, float] = defaultdict(float)
        minutes: dict[int, float] = defaultdict(float)
        for point in mine:
            base = split_name(point.series[2])
            if base.base == counted:
                minutes[point.start_ms] += point.total
                if not part.is_spout:
                    edges[base.key.rpartition("/")[0]] += point.total
        rates = tuple(
            count * 1000 / (min(at + STEP_MS, to_ms) - max(at, from_ms))
            for at, count in sorted(minutes.items())
            if at >= first and min(at + STEP_MS, to_ms) > max(at, from_ms)
        )
        by_task: dict[str, list[Point]] = defaultdict(list)
        for point in mine:
            by_task[point.series[1]].append(point)
        tasks = tuple(_task(name, by_task[name], counted, caused[name]) for name in sorted(by_task))
        results.append(ComponentLoad(part.name, part.is_spout, part.parallelism, tasks, dict(edges), rates))
    return results


def _task(instance: str, points: list[Point], counted: str, caused_secs: float) -> TaskLoad:
    total: dict[str, float] = defaultdict(float)
    memory = 0.0
    for point in points:
        base = split_name(point.series[2]).base
        total[base] += point.total
        if base == PHYSICAL_MEMORY and point.high is not None:
            memory = max(memory, point.high)
    return TaskLoad(
        instance, total[counted], total[BUSY] / 1000, total[IDLE] / 1000, total[HELD] / 1000, caused_secs,
        sum(total[name] for name in CPU), memory,
    )  # fmt: skip
