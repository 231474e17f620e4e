"""Source of the rows of an Iceberg table at one snapshot (``lake_source.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.iceberg import CATALOG, TABLE, IcebergTable, catalog_problems, end_threads
from heronry.connect.lake_source import LakeRows, Snapshot
from heronry.connect.settings import ConnectError, driver, seconds, whole

EMPTY = 0  # the version of a table without a snapshot


class IcebergRows(LakeRows):
    """Source of the rows of the table ``user.iceberg.table`` of ``user.iceberg.catalog`` at one snapshot.

    ``user.iceberg.snapshot`` is the id of the snapshot. The fields are the columns named in ``optional_outputs``.
    Requires ``pip install heronry[iceberg]``.
    """

    example = "IcebergRows.spec(optional_outputs=['id', 'word'])"
    pause = seconds("user.iceberg.poll.secs", "how long to wait at the end, where nothing more will come", 5.0)
    version_option = whole("user.iceberg.snapshot", "the id of the snapshot that is read", least=0)
    options = (CATALOG, TABLE, version_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from catalog_problems(config)

    @classmethod
    def snapshot(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> IcebergSnapshot:
        """Open the table at a snapshot, or the newest. Raises ConnectError."""
        return IcebergSnapshot(IcebergTable(CATALOG.of(config), TABLE.of(config), "iceberg"), fields, version)


class IcebergSnapshot(Snapshot):
    """Snapshot of an Iceberg table, with the data files of the library's scan plan."""

    def __init__(self, table: IcebergTable, fields: tuple[str, ...], version: int | None) -> None:
        """Plan the scan. Raises ConnectError."""
        self._arrow = driver("pyiceberg.io.pyarrow", "iceberg", "pyiceberg", "iceberg")
        self.name, self._fields, self._table = table.name, list(fields), table.check_support("read").table
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
        """Store the tasks of the scan. Raises ConnectError if the snapshot has delete files."""
        try:
            tasks = list(scan.plan_files())
        except ValueError as error:  # raised by the library for equality delete files
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
        """Return the paths of the data files."""
        return list(self._tasks)

    def rows(self, file: str) -> int:
        """Return the number of rows of a file, from its manifest."""
        return int(self._tasks[file].file.record_count)

    def batches(self, file: str) -> Iterator[Any]:
        """Yield the rows of a file as Arrow batches, with columns matched by field ids."""
        always = driver("pyiceberg.expressions", "iceberg", "pyiceberg", "iceberg").AlwaysTrue()
        scan = self._arrow.ArrowScan(self._table.metadata, self._table.io, self._projected, always, True)
        for batch in scan.to_record_batches([self._tasks[file]]):
            yield batch.select(self._fields)

    def close(self) -> None:
        """End the library's threads."""
        end_threads()
