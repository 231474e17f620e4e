"""Iceberg tables: opening, reading by file at a snapshot, and committing with a mark.

The library is ``pyiceberg``; its catalog is configured with its own properties. Columns are matched by field ids: files
are written with ids and read by the library, which follows renamed and added columns. Tables that would be read
incorrectly are rejected: those with delete files, and those of format versions with row lineage. Partition values are
in the files and in a manifest.

A writer's mark is a table property, set in the same commit as the snapshot. It remains as long as the table, even when
snapshots expire. The library's own retry is disabled, because it would append again without checking the mark.

The library's transforms of Arrow columns require another package (``pyiceberg-core``). This module uses the transforms
of single values, which the library itself applies to predicates. They use a Decimal's written form, so a Decimal is
first quantized to the column's scale: 1.5 and 1.50 belong to the same bucket. A key contains JSON values only; other
values are restored from it. Rejected partitions: floats by identity (0.0 and -0.0 are equal but would be two
partitions), and unknown transforms.
"""

from __future__ import annotations

import datetime as dt
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from heron_runtime.failures import one_line
from heron_runtime.files import sync_folder
from heronry.connect.lake import Added, Busy, marks_of
from heronry.connect.lake_parts import Partitions, Place
from heronry.connect.settings import ConnectError, arrow_driver, driver, mapping, parse_url, text

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
        features = ", ".join(self._unknown(what))
        if features:
            raise ConnectError(
                f"{self._who} cannot {what} {self.name}, which has {features}: {what} a table without, or let another "
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
            data_files = list(self._data_files(files))
            with table.transaction() as change:
                change.set_properties({MARK + writer: str(number) for writer, number in marks_of(files).items()})
                with change.update_snapshot().fast_append() as append:
                    for file in data_files:
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
            data_file = arrow.parquet_file_to_data_file(table.io, flat, place)
            if partitions is not None:
                data_file[PARTITION], data_file.spec_id = partitions.record(file.key), table.spec().spec_id
            yield data_file

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


EXACT = Context(prec=76)  # twice the maximum digits of a column


def refused(spec: Any, schema: Any) -> Iterator[str]:
    """Yield the reasons why a table with this spec and schema, both the library's, cannot be written."""
    transforms = importlib.import_module("pyiceberg.transforms")
    columns = {column.field_id: column for column in schema.fields}
    for field in spec.fields:
        column, plain = columns.get(field.source_id), isinstance(field.transform, transforms.IdentityTransform)
        if isinstance(field.transform, transforms.UnknownTransform):
            yield f"the partition {field.name} by an unsupported transform"
        elif column is None:
            yield f"the partition {field.name} by a column that is nested, or gone"
        elif plain and str(column.field_type) in ("float", "double"):
            yield f"the column {column.name} {column.field_type} as a partition"


class IcebergPartitions(Partitions):
    """Partitions of an Iceberg table whose partition fields were accepted by ``refused``."""

    def __init__(self, spec: Any, schema: Any, arrow: Any) -> None:
        """Prepare the transforms of the spec's fields.

        Args:
            spec: The library's partition spec.
            schema: The library's schema.
            arrow: The Arrow schema.
        """
        sources = [schema.find_field(field.source_id) for field in spec.fields]
        descriptions = (
            f"{field.transform} of {source.name}" for field, source in zip(spec.fields, sources, strict=True)
        )
        super().__init__(", ".join(descriptions), [source.name for source in sources], arrow)
        self._spec, self._schema = spec, schema
        self._made = [_made(field, source.field_type) for field, source in zip(spec.fields, sources, strict=True)]
        self._named = lru_cache(4096)(self._name)  # there are few partitions, compared to rows

    def of(self, values: Sequence[Any]) -> Place:
        """Return the partition of the columns' values."""
        return self._named(*[make(value) for make, value in zip(self._made, values, strict=True)])

    def _name(self, *values: Any) -> Place:
        record = importlib.import_module("pyiceberg.typedef").Record(*values)
        return Place(self._spec.partition_to_path(record, self._schema), tuple(map(_kept, values)))

    def record(self, key: Sequence[Any]) -> Any:
        """Return the library's record for a partition's key."""
        types = [field.field_type for field in self._spec.partition_type(self._schema).fields]
        values = [_again(value, str(of)) for value, of in zip(key, types, strict=True)]
        return importlib.import_module("pyiceberg.typedef").Record(*values)


def _made(field: Any, of: Any) -> Callable[[Any], Any]:
    """Return a function from a column's value to the partition's value in the library's form (days, microseconds)."""
    transform, datetimes = field.transform.transform(of), importlib.import_module("pyiceberg.utils.datetime")
    scale = Decimal(1).scaleb(-of.scale) if hasattr(of, "scale") else None

    def made(value: Any) -> Any:
        if scale is not None and value is not None:
            value = value.quantize(scale, context=EXACT)
        elif isinstance(value, dt.datetime):
            value = datetimes.datetime_to_micros(value)
        elif isinstance(value, dt.date):
            value = datetimes.date_to_days(value)
        return transform(value)

    return made


def _kept(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value) if isinstance(value, Decimal) else value


def _again(stored: Any, of: str) -> Any:
    if stored is None:
        return None
    return bytes.fromhex(stored) if of == "binary" else Decimal(stored) if of.startswith("decimal") else stored
