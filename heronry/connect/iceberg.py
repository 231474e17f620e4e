"""Iceberg tables: opening, reading by file at a snapshot, and committing with a mark.

The library is ``pyiceberg``; its catalog is configured with its own properties. Columns are matched by field ids: files
are written with ids and read by the library, which follows renamed and added columns. Tables that would be read
incorrectly are rejected: those with delete files, and those of format versions with row lineage. Partition values are
in the files and in a manifest (``iceberg_parts.py``).

A writer's mark is a table property, set in the same commit as the snapshot. It remains as long as the table, even when
snapshots expire. The library's own retry is disabled, because it would append again without checking the mark.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.failures import one_line
from heron_runtime.files import sync_folder
from heronry.connect.drivers import arrow_driver, driver
from heronry.connect.iceberg_parts import IcebergPartitions, refused
from heronry.connect.lake import Added, Busy, marks_of
from heronry.connect.settings import ConnectError, mapping, parse_url, text

EXTRA = "iceberg"
CATALOG = mapping("user.iceberg.catalog", "the properties of pyiceberg's catalog (name, type, uri, warehouse)")
TABLE = text("user.iceberg.table", "the table, with its namespace: shop.orders", required=True)
SECRETS = ("password", "secret", "token", "credential", "access-key")
MARK, RETRIES = "heronry.committed.", "commit.retry.num-retries"
NEWEST_FORMAT = 2
PARTITION = 3  # index of the partition in a manifest's data file record


def catalog_problems(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message if the catalog is missing from a configuration, or contains a secret."""
    given = config.get(CATALOG.key)
    if not given:
        yield f"needs config {CATALOG.key!r}: {CATALOG.what}"
    if isinstance(given, Mapping):
        shown = [key for key in given if any(word in str(key).lower() for word in SECRETS)]
        shown += [key for key, value in given.items() if isinstance(value, str) and _has_password(value)]
        if shown:
            yield (
                f"config {CATALOG.key!r} holds a secret ({', '.join(shown)}), which a topology's definition shows: put "
                "it into pyiceberg's own configuration on each host (.pyiceberg.yaml, PYICEBERG_CATALOG__NAME__…)"
            )


def _has_password(value: str) -> bool:
    parts = parse_url(value)
    return parts is not None and "://" in value and bool(parts.password)


@lru_cache(maxsize=8)
def _catalog(properties: tuple[tuple[str, str], ...]) -> Any:
    """Return the catalog. It is cached, so its connections are shared within the process."""
    given = dict(properties)
    return importlib.import_module("pyiceberg.catalog").load_catalog(given.pop("name", "default"), **given)


def end_threads() -> None:
    """Shut down the library's thread pool, which it would otherwise keep forever and recreates on demand.

    A component calls this when it is closed, so that it leaves no threads running.
    """
    module = sys.modules.get("pyiceberg.utils.concurrent")  # None if the library is not loaded
    pool = None if module is None else module.ExecutorFactory._instance
    if module is not None and pool is not None:
        module.ExecutorFactory._instance = None
        pool.shutdown()


class IcebergTable:
    """Iceberg table in its present state.

    Args:
        catalog: Properties of pyiceberg's catalog.
        name: Name of the table with its namespace.
        who: Name of the connector, for messages.

    Attributes:
        name: Description of the table, for messages.
        root: Folder of its data files.
        schema: Arrow schema.
        table: The library's table.

    Raises:
        ConnectError: The library is not installed, or the table cannot be opened or is in an object store.
    """

    def __init__(self, catalog: Mapping[str, str], name: str, who: str) -> None:
        self._arrow, _ = arrow_driver(who, EXTRA)
        driver("pyiceberg", who, "pyiceberg", EXTRA)
        self.name, self._who = f"the Iceberg table {name}", who
        self.table: Any = self._opened(dict(catalog), name)
        self.schema = driver("pyiceberg.io.pyarrow", who, "pyiceberg", EXTRA).schema_to_pyarrow(self.table.schema())
        place = urlsplit(self.table.location())
        if place.scheme not in ("", "file"):
            raise ConnectError(
                f"{who}: {self.name} is stored at {self.table.location()}: only tables on a file system that all hosts "
                "share are supported, not tables in object stores"
            )
        self.root = Path(place.path, "data")  # without unquoting, as the library does

    def _opened(self, catalog: dict[str, str], name: str) -> Any:
        exceptions = driver("pyiceberg.exceptions", self._who, "pyiceberg", EXTRA)
        try:
            return _catalog(tuple(sorted(catalog.items()))).load_table(name)
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIdentifierError):
            raise ConnectError(
                f"{self._who}: no Iceberg table {name} in the catalog: create it (pyiceberg's "
                "create_table, or Spark), or name another"
            ) from None
        except Exception as error:  # catalogs raise their own errors: sqlalchemy, HTTP, file system
            raise ConnectError(
                f"{self._who}: the Iceberg table {name} cannot be read from its catalog ({type(error).__name__}: "
                f"{one_line(str(error), 300)}): check config {CATALOG.key!r}, and that each host reaches it"
            ) from None

    @property
    def partitions(self) -> IcebergPartitions | None:
        """Return the partitions of a writable table, or None if it has none."""
        spec = self.table.spec()
        return IcebergPartitions(spec, self.table.schema(), self.schema) if spec.fields else None

    def _unknown(self, what: str) -> Iterator[str]:
        if what == "write":
            yield from refused(self.table.spec(), self.table.schema())
        if self.table.format_version > NEWEST_FORMAT:
            yield f"format version {self.table.format_version}"

    def check_support(self, what: str) -> IcebergTable:
        """Return this table. Raises ConnectError if it cannot be read, or written, correctly.

        Args:
            what: The operation, "read" or "write".
        """
        found = ", ".join(self._unknown(what))
        if found:
            raise ConnectError(
                f"{self._who} cannot {what} {self.name}, which has {found}: {what} a table without, or let another "
                "engine do it"
            )
        return self

    def committed(self, writer: str) -> int:
        """Return the last checkpoint that the writer committed according to the table's properties, or -1."""
        return int(self.table.properties.get(MARK + writer, -1))

    def add(self, files: Sequence[Added]) -> None:
        """Commit a snapshot with the files, and the marks, in one commit.

        Raises:
            Busy: Another writer changed the table.
            ConnectError: The table cannot be written.
        """
        exceptions = driver("pyiceberg.exceptions", self._who, "pyiceberg", EXTRA)
        table = self.table
        table.metadata.properties[RETRIES] = "0"  # changes only this object, not the table
        try:
            found = list(self._data_files(files))
            with table.transaction() as change:
                change.set_properties({MARK + writer: str(number) for writer, number in marks_of(files).items()})
                with change.update_snapshot().fast_append() as append:
                    for file in found:
                        append.append_data_file(file)
            self._sync()
        except (exceptions.CommitFailedException, exceptions.CommitStateUnknownException) as error:
            raise Busy(
                f"{self.name} rejects the files of {files[0].writer}, because other writers change it concurrently "
                f"({one_line(str(error), 200)}). The rows are safe, and are committed again once the topology continues"
            ) from None
        except Exception as error:  # catalogs raise their own errors
            raise ConnectError(
                f"{self._who} cannot commit to {self.name} ({type(error).__name__}: {one_line(str(error), 300)}): see "
                "to its catalog and its folder (rights, room). The rows are safe, and are committed again once the "
                "topology continues"
            ) from None

    def _data_files(self, files: Sequence[Added]) -> Iterator[Any]:
        """Yield the library's data file objects.

        The library would derive the partition from a column's minimum and maximum, which does not work for buckets.
        So it gets an unpartitioned spec, and the partition is set from the staged key.
        """
        arrow = driver("pyiceberg.io.pyarrow", self._who, "pyiceberg", EXTRA)
        plain = importlib.import_module("pyiceberg.partitioning").UNPARTITIONED_PARTITION_SPEC
        table, partitions = self.table, self.partitions
        flat = table.metadata.model_copy(update={"partition_specs": [plain], "default_spec_id": plain.spec_id})
        for file in files:
            place = f"{table.location()}/data/{file.file.relative_to(self.root).as_posix()}"
            found = arrow.parquet_file_to_data_file(table.io, flat, place)
            if partitions is not None:
                found[PARTITION], found.spec_id = partitions.record(file.key), table.spec().spec_id
            yield found

    def _sync(self) -> None:
        """Flush the new metadata files to disk, as the library does not do so."""
        snapshot = self.table.current_snapshot()
        written = [self.table.metadata_location, snapshot.manifest_list]
        written += [manifest.manifest_path for manifest in snapshot.manifests(self.table.io)[:1]]  # the newest is first
        for place in written:
            path = Path(urlsplit(place).path)
            with path.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(path.parent)

    def forget(self, begin: str) -> None:
        """Remove the marks of writers whose names start with ``begin``."""
        keys = [key for key in self.table.properties if key.startswith(MARK + begin)]
        if keys:
            with self.table.transaction() as change:
                change.remove_properties(*keys)
