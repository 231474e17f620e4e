"""Rows of an Iceberg table at one snapshot (``lake_source.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.drivers import driver
from heronry.connect.iceberg import CATALOG, TABLE, IcebergTable, catalog_problems, end_threads
from heronry.connect.lake_source import LakeRows, Snapshot
from heronry.connect.settings import ConnectError, seconds, whole

EMPTY = 0  # the version of a table without a snapshot


class IcebergRows(LakeRows):
    """Emits the rows of the table ``user.iceberg.table`` of ``user.iceberg.catalog`` as they were at the snapshot
    ``user.iceberg.snapshot``; the fields are the columns named in ``optional_outputs``. Needs ``pip install
    heronry[iceberg]``."""

    example = "IcebergRows.spec(optional_outputs=['id', 'word'])"
    pause = seconds("user.iceberg.poll.secs", "how long to wait at the end, where nothing more will come", 5.0)
    version_option = whole("user.iceberg.snapshot", "the id of the snapshot that is read", least=0)
    options = (CATALOG, TABLE, version_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from catalog_problems(config)

    @classmethod
    def snapshot(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> IcebergSnapshot:
        """Raises ConnectError."""
        return IcebergSnapshot(IcebergTable(CATALOG.of(config), TABLE.of(config), "iceberg"), fields, version)


class IcebergSnapshot(Snapshot):
    """The data files that a scan of the snapshot plans, each read by the library's own reader."""

    def __init__(self, table: IcebergTable, fields: tuple[str, ...], version: int | None) -> None:
        """Raises ConnectError."""
        self._arrow = driver("pyiceberg.io.pyarrow", "iceberg", "pyiceberg", "iceberg")
        self.name, self._fields, self._table = table.name, list(fields), table.known("read").table
        newest = self._table.current_snapshot()
        self.version = (EMPTY if newest is None else newest.snapshot_id) if version is None else version
        self._tasks: dict[str, Any] = {}
        self.schema = table.schema
        if self.version == EMPTY:
            return
        if self._table.snapshot_by_id(self.version) is None:
            raise ConnectError(
                f"{self.name} has no snapshot {self.version} (any more); the newest is "
                f"{EMPTY if newest is None else newest.snapshot_id}"
            )
        scan = self._table.scan(snapshot_id=self.version)
        self.schema = self._arrow.schema_to_pyarrow(scan.projection())
        self._plan(scan)

    def _plan(self, scan: Any) -> None:
        """Raises ConnectError."""
        try:
            tasks = list(scan.plan_files())
        except ValueError as error:  # so the library says it of delete files that name rows by their values
            raise self._refused(one_line(str(error), 200)) from None
        if any(task.delete_files for task in tasks):
            raise self._refused("it has delete files, which name rows by their positions")
        self._tasks = {task.file.file_path: task for task in sorted(tasks, key=lambda task: str(task.file.file_path))}
        there = [name for name in self._fields if name in self.schema.names]
        self._projected = scan.projection().select(*there)

    def _refused(self, why: str) -> ConnectError:
        return ConnectError(
            f"iceberg cannot read {self.name} at snapshot {self.version} ({why}): rewrite the table first, or let "
            "another engine read it"
        )

    def files(self) -> list[str]:
        """Their places."""
        return list(self._tasks)

    def rows(self, file: str) -> int:
        """As its manifest says."""
        return int(self._tasks[file].file.record_count)

    def batches(self, file: str) -> Iterator[Any]:
        """By field ids."""
        always = driver("pyiceberg.expressions", "iceberg", "pyiceberg", "iceberg").AlwaysTrue()
        scan = self._arrow.ArrowScan(self._table.metadata, self._table.io, self._projected, always, True)
        for batch in scan.to_record_batches([self._tasks[file]]):
            yield batch.select(self._fields)

    def close(self) -> None:
        """The library's threads end."""
        end_threads()
