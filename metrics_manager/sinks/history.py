"""Sink ``history``: metrics and events of a container as Parquet files that outlive the topology.

``history_rows.py`` defines the rows and ``heron_runtime.model.history`` the paths. Files are encoded and written on a
thread. A file appears by one rename. Before that, the reports it was counted from are saved under its number in the
folder of the topology, so a restarted metrics manager knows whether its last file exists and what it contains. The sink
of container 0 also writes ``topology.json`` and removes expired submissions of the same name.

pyarrow is an extra. It is imported when the sink opens, so only topologies with a history load it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from pathlib import Path
from typing import Any

from heron_runtime.failures import Unavailable, UsageError
from heron_runtime.files import entries, replace_file
from heron_runtime.history_folder import dates, files, read_about, superseded
from heron_runtime.launch import Launch
from heron_runtime.model.history import (
    ABOUT,
    DAY_MS,
    EVENTS,
    HISTORY,
    METRICS,
    PLAN,
    RAW,
    ROLLED,
    ComponentSummary,
    HistoryEvent,
    MetricRow,
    SubmissionPath,
    TopologySummary,
    bucket,
    date_of,
    day_folder,
    file_name,
    number_of,
    span_of,
)
from heron_runtime.model.records import TopologyRecord
from heron_runtime.model.settings import Keys, setting
from heron_runtime.state import store_of, topologies
from heron_runtime.state.store import StateStore, StoreError
from heron_runtime.wire.metrics import ProcessMetrics
from metrics_manager.saved_reports import load_reports, save_reports
from metrics_manager.sinks import SinkContext
from metrics_manager.sinks.history_rows import Files, Growing, beyond

FIRST_CONTAINER = 0

log = logging.getLogger(__name__)


def root_of(launch: Launch) -> Path:
    """Return the folder of all histories.

    Raises:
        UsageError: The cluster has no default folder and none is set.
    """
    given = setting(launch.settings, Keys.HERON_HISTORY_FOLDER)
    if given:
        if not Path(given).is_absolute():
            raise UsageError(f"{Keys.HERON_HISTORY_FOLDER.name}: {given!r} is not an absolute path")
        return Path(given)
    if setting(launch.settings, Keys.HERON_SCHEDULER) not in ("local", "slurm"):
        raise UsageError(
            f"set {Keys.HERON_HISTORY_FOLDER.name} to a folder that all containers see: "
            "here a topology's home goes with it"
        )
    return Path(launch.home).parents[4] / HISTORY


class HistorySink:
    """Collects metrics at each interval and writes files when they are due."""

    async def open(self, context: SinkContext) -> None:
        """Find the last file.

        Raises:
            Unavailable: pyarrow is not installed.
            UsageError: No folder is set.
            OSError: The folder cannot be read.
            StoreError: The state store is unavailable.
        """
        self._context = context
        launch = context.launch
        self._place = SubmissionPath(launch.cluster, launch.role, launch.environ, launch.topology, launch.topology_id)
        self._folder = root_of(launch) / self._place.path
        self._arrow = await asyncio.to_thread(_need_pyarrow)
        self._version = 0
        self._files = Files(setting(launch.settings, Keys.HERON_HISTORY_FILE_SECS), time.monotonic())
        self._states = States(launch.metrics_dir, context.container, self._folder / METRICS / RAW)
        self._growing = Growing(await asyncio.to_thread(self._states.open))
        self._store: StateStore | None = None
        self._failing = False
        self._writing: asyncio.Task[None] | None = None
        if context.container == FIRST_CONTAINER:
            await asyncio.to_thread(self._clear_old)
            self._store = store_of(launch)
            await asyncio.to_thread(self._store.open)

    async def flush(self) -> None:
        """Collect what is new, and write a file if one is due.

        Raises:
            OSError: The file cannot be written.
            ValueError: The saved reports are too large.
        """
        version = self._context.metrics.version
        self._growing.take(self._context.metrics.entries(self._version))
        self._version = version
        if self._failing or self._files.due(time.monotonic()):
            await self._write()

    async def close(self) -> None:
        """Write what is left and close the store."""
        try:
            await self._write()
        finally:
            if self._store is not None:
                await asyncio.to_thread(self._store.close)

    async def _write(self) -> None:
        if self._writing is not None:  # the task that waited for it was cancelled
            await self._written()
        if self._store is not None:
            with contextlib.suppress(StoreError):  # away, or the topology is being killed: next time
                self._growing.note(await asyncio.to_thread(self._describe, self._store))
        if not self._growing.waits:
            return
        dropped, self._growing.events_dropped = self._growing.events_dropped, 0
        if dropped:
            log.warning(
                "%d events are missing in %s: they came too fast, or could not be written in time",
                dropped,
                self._folder,
            )
        self._rows, self._events = self._growing.take_rows()
        write = asyncio.to_thread(self._add_file, self._rows, self._events, self._growing.baseline())
        self._writing = asyncio.create_task(write, name="history file")
        await self._written()

    async def _written(self) -> None:
        """Wait for the current file. A thread cannot be cancelled: it continues, and the next call sees its end."""
        assert self._writing is not None
        self._failing = True
        try:
            await asyncio.shield(self._writing)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._writing = None
            self._growing.put_back(self._rows, self._events)
            raise
        self._writing = None
        self._failing = False

    def _add_file(
        self, rows: list[MetricRow], events: list[HistoryEvent], baseline: tuple[ProcessMetrics, ...]
    ) -> None:
        number = self._states.next
        newest = max([r.start_ms for r in rows] + [e.time_ms for e in events])
        day, name = day_folder(date_of(newest)), file_name(self._context.container, number)
        if events:
            _write_table(self._folder / EVENTS / day / name, event_table(self._arrow, events))
        self._states.before(baseline)
        _write_table(self._folder / METRICS / RAW / day / name, row_table(self._arrow, rows))
        self._states.written()
        launch = self._context.launch
        keep_days = setting(launch.settings, Keys.HERON_HISTORY_KEEP_DAYS)
        max_bytes = setting(launch.settings, Keys.HERON_HISTORY_MAX_BYTES)
        oldest = date_of(bucket(newest, "1d") - keep_days * DAY_MS)
        for kind in (Path(METRICS, RAW), Path(EVENTS)):
            remove_old(self._folder / kind, self._context.container, max_bytes, oldest)

    def _describe(self, store: StateStore) -> list[HistoryEvent]:
        """Write ``topology.json`` if the plan has changed, and return the events of the change."""
        record = topologies.read_topology(store, self._context.launch.topology)
        if record.definition.id != self._place.id:
            return []
        about, before = about_of(record), read_about(self._folder)
        if about == before:
            return []
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._folder / ABOUT, about.to_json())
        if before is not None and (before.containers, before.parts) == (about.containers, about.parts):
            return []
        tasks = ", ".join(f"{part.name}: {part.parallelism}" for part in about.parts)
        text = f"tasks {tasks}; containers: {about.containers}"
        return [HistoryEvent(round(time.time() * 1000), PLAN, FIRST_CONTAINER, "", "", 1, text)]

    def _clear_old(self) -> None:
        """Remove earlier submissions of this name whose rows have expired."""
        keep_days = setting(self._context.launch.settings, Keys.HERON_HISTORY_KEEP_DAYS)
        oldest = time.time() - keep_days * DAY_MS / 1000
        for folder in entries(self._folder.parent):
            if folder == self._folder or any(dates(folder / METRICS / level) for level in ROLLED):
                continue  # what is rolled up is kept as long as the job says that rolls it up
            if max((file.stat().st_mtime for file in folder.rglob("*")), default=0.0) < oldest:
                shutil.rmtree(folder, ignore_errors=True)


class States:
    """Reports that each file was counted from: ``history-C-N.state`` in the folder of the container.

    The reports of file N are written before the file, and earlier ones are removed after it. If two exist, the
    existence of the file decides which one applies.
    """

    def __init__(self, folder: Path, container: int, raw: Path) -> None:
        self._folder = folder
        self._container = container
        self._raw = raw
        self.next = 1

    def open(self) -> tuple[ProcessMetrics, ...]:
        """Return the reports of the newest file.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file is too large.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        there = {
            number
            for date in dates(self._raw)
            for file in files(self._raw, date)
            if (number := number_of(file.name, self._container)) is not None
        }
        numbers = self._numbers()
        if not numbers:
            save_reports(self._path(max(there, default=0)), self._container, ())
            numbers = self._numbers()
        if len(numbers) > 1 and numbers[-1] not in there:
            numbers.pop()
        self.next = max([numbers[-1], *there]) + 1
        return tuple(load_reports(self._path(numbers[-1])))

    def before(self, baseline: tuple[ProcessMetrics, ...]) -> None:
        """Save the reports of the next file.

        Raises:
            OSError: The file cannot be written.
            ValueError: The reports are too large.
        """
        save_reports(self._path(self.next), self._container, baseline)

    def written(self) -> None:
        """Confirm that the file was written, and remove earlier reports."""
        for number in self._numbers():
            if number != self.next:
                self._path(number).unlink(missing_ok=True)
        self.next += 1

    def _path(self, number: int) -> Path:
        return self._folder / f"history-{self._container}-{number}.state"

    def _numbers(self) -> list[int]:
        numbers = [file.stem.rpartition("-")[2] for file in self._folder.glob(f"history-{self._container}-*.state")]
        return sorted(int(number) for number in numbers if number.isdecimal())


def about_of(record: TopologyRecord) -> TopologySummary:
    """Return the content of ``topology.json``."""
    tasks: dict[str, int] = {}
    for instance in record.packing.instances():
        tasks[instance.component] = tasks.get(instance.component, 0) + 1
    parts = tuple(
        ComponentSummary(
            spec.name, spec.is_spout, tasks.get(spec.name, 0), tuple((i.component, i.stream) for i in spec.inputs)
        )
        for spec in record.definition.components
    )
    version = str(record.physical.version) if record.physical is not None else ""
    return TopologySummary(record.execution.submitted_at, version, len(record.packing.containers), parts)


def row_table(pa: Any, rows: list[MetricRow]) -> Any:
    """Return rows as an Arrow table."""
    text = pa.dictionary(pa.int32(), pa.string())
    columns = {
        "start_ms": pa.array([r.start_ms for r in rows], pa.int64()),
        "container": pa.array([r.container for r in rows], pa.int32()),
        **{n: pa.array([getattr(r, n) for r in rows], text) for n in ("component", "instance", "metric", "kind")},
        **{n: pa.array([getattr(r, n) for r in rows], pa.float64()) for n in ("count", "sum", "low", "high", "last")},
        "last_ms": pa.array([r.last_ms for r in rows], pa.int64()),
        "bins": pa.array([sorted(r.bins) for r in rows], pa.list_(pa.int32())),
        "counts": pa.array([[r.bins[key] for key in sorted(r.bins)] for r in rows], pa.list_(pa.float64())),
    }
    return pa.table(columns)


def event_table(pa: Any, events: list[HistoryEvent]) -> Any:
    """Return events as an Arrow table."""
    texts = ("kind", "component", "instance", "text", "detail")
    columns = {
        "time_ms": pa.array([e.time_ms for e in events], pa.int64()),
        "container": pa.array([e.container for e in events], pa.int32()),
        "count": pa.array([e.count for e in events], pa.int64()),
        **{name: pa.array([getattr(e, name) for e in events], pa.string()) for name in texts},
    }
    return pa.table(columns)


def _need_pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise Unavailable(
            "the history of topologies needs pyarrow, which is not installed where the containers run; "
            "run there: pip install 'heronry[history]'"
        ) from None
    return pyarrow


def _write_table(path: Path, table: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    replace_file(path, sink.getvalue().to_pybytes())


def remove_old(folder: Path, container: int, max_bytes: int, oldest_date: str) -> None:
    """Remove the oldest files of a container, beyond ``max_bytes`` or before ``oldest_date``.

    Raises:
        OSError: A file cannot be removed.
    """
    files_by_age = []
    for date in dates(folder):
        # What a compaction has left goes before what it has made, or its rows would be there again.
        for file in [*superseded(folder, date), *files(folder, date)]:
            span = span_of(file.name)
            with contextlib.suppress(FileNotFoundError):  # a roll-up has been quicker
                if span is not None and span[0] == container:
                    files_by_age.append(((span[2], -span[1]), (str(file), file.stat().st_size, date)))
    for path in beyond([file for _, file in sorted(files_by_age)], max_bytes, oldest_date):
        Path(path).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others have files in it
            Path(path).parent.rmdir()
