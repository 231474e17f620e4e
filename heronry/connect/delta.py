"""Delta tables: opening, reading by file at a version, and committing with a transaction identifier.

The library is ``deltalake``. pyarrow reads the rows from the data files that the library lists, with the partition
values that it returns. Table features that this method would read incorrectly are rejected by name: deletion vectors,
column mapping, and all unknown features. For writing, features that a writer would have to compute or check are
rejected as well: generated and identity columns, and constraints.

A commit carries Delta's action ``txn`` (Delta's protocol, "Transaction Identifiers") with the writer and its
checkpoint. Of two concurrent commits with the same identifier, the second fails.

The log holds partition values as text, data files do not contain partition columns, and folders are named as the
library names them: ``word=a%20b``. Timestamps with a zone are written with it, because Spark would read the form
without a zone in the zone of its session.

Values that readers would not return unchanged are rejected. Rejected column types: bytes (readers return the text
form), floats (0.0 and -0.0 are equal but would be two partitions) and Decimals (``deltalake`` 1.6 reads -0.1 as
``0.-1``). The empty string is rejected as a value, because the format reads it as null.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from heron_runtime.failures import one_line
from heron_runtime.files import sync_folder
from heronry.connect.lake import Added, Busy, column_of, marks_of
from heronry.connect.lake_parts import Partitions, Place, Unfit
from heronry.connect.settings import ConnectError, Option, arrow_driver, driver, text

EXTRA = "delta"
PATH = text("user.delta.path", "the folder of the Delta table, the same on each host", required=True)
READER_FEATURES = {"timestampNtz", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck"}
WRITER_FEATURES = READER_FEATURES | {
    "appendOnly", "invariants", "changeDataFeed", "checkConstraints", "generatedColumns", "identityColumns",
}  # fmt: skip
COMPUTED = ("delta.invariants", "delta.generationExpression", "delta.identity.start")  # properties of a column
MAPPING, EXPIRY = "delta.columnMapping.mode", "delta.setTransactionRetentionDuration"


def path_problems(option: Option, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message if the table's path is not an absolute path of a folder."""
    given = config.get(option.key)
    if isinstance(given, str) and given and ("://" in given or not Path(given).is_absolute()):
        yield (
            f"config {option.key!r} is {given!r:.80}; write the whole path of a folder that every host has (URLs of "
            "object stores are not known here)"
        )


class DeltaTable:
    """Delta table at its newest or a given version.

    Args:
        path: Folder of the table.
        who: Name of the connector, for messages.
        version: Version to open; None opens the newest.

    Attributes:
        name: Description of the table, for messages.
        root: Folder of its data files.
        version: The version that is open.
        schema: Arrow schema.

    Raises:
        ConnectError: The library is not installed, or the table cannot be opened.
    """

    def __init__(self, path: str, who: str, version: int | None = None) -> None:
        self._arrow, _ = arrow_driver(who, EXTRA)
        self._library = driver("deltalake", who, "deltalake", EXTRA)
        self._path, self._who = path, who
        self._table = self._opened(version)
        self.name, self.root = f"the Delta table {path}", Path(path)
        self.version: int = self._table.version()
        self.schema = self._arrow.schema(self._table.schema())
        self._by: list[str] = self._table.metadata().partition_columns

    def _opened(self, version: int | None) -> Any:
        exceptions = self._library.exceptions
        try:
            table = self._library.DeltaTable(self._path)
            newest = table.version()
            if version is not None and version != newest:
                if version > newest:
                    raise ConnectError(
                        f"{self._who}: the Delta table {self._path} has versions up to {newest}, not version "
                        f"{version}: name an existing one"
                    )
                table.load_as_version(version)
            return table
        except exceptions.TableNotFoundError:
            raise ConnectError(
                f"{self._who}: no Delta table at {self._path}: create it (deltalake's DeltaTable.create(path, schema), "
                "or Spark), or name another; hosts and containers must have it at the same path"
            ) from None
        except (exceptions.DeltaError, OSError) as error:
            which = "" if version is None else f" at version {version}"
            raise ConnectError(
                f"{self._who}: the Delta table {self._path} cannot be read{which}: {one_line(str(error), 300)}. Its "
                "user needs to read the folder and its _delta_log; a version whose log was cleaned up no longer exists"
            ) from None

    # Reading.

    def readable(self) -> DeltaTable:
        """Return this table. Raises ConnectError if it has features that cannot be read correctly."""
        self._refuse(self._unreadable(), "read")
        return self

    def fragments(self) -> tuple[dict[str, Any], Any]:
        """Return the data files as Arrow fragments by name, in the order of names, and the schema to read them with."""
        try:
            dataset = self._table.to_pyarrow_dataset()
        except self._library.exceptions.DeltaError as error:
            raise ConnectError(f"{self._who}: {self.name}: {one_line(str(error), 300)}") from None
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        return dict(sorted(fragments.items())), dataset.schema

    def _unreadable(self) -> Iterator[str]:
        yield from sorted(set(self._table.protocol().reader_features or ()) - READER_FEATURES)
        if self._table.metadata().configuration.get(MAPPING, "none") != "none":
            yield "column mapping"

    # Writing.

    def writable(self) -> DeltaTable:
        """Return this table. Raises ConnectError if it has features that cannot be written correctly."""
        self._refuse((*self._unreadable(), *self._unwritable()), "write")
        return self

    @property
    def partitions(self) -> DeltaPartitions | None:
        """Return the partitions of a writable table, or None if it has none."""
        return DeltaPartitions(self._by, self.schema) if self._by else None

    def _unwritable(self) -> Iterator[str]:
        about, protocol = self._table.metadata(), self._table.protocol()
        yield from sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
        yield from refused(self._by, self.schema)
        for key in about.configuration:
            if key.startswith("delta.constraints."):
                yield f"the constraint {key.removeprefix('delta.constraints.')}"
        if EXPIRY in about.configuration:
            yield f"marks that expire ({EXPIRY})"
        for field in self._table.schema().fields:
            for what in COMPUTED:
                if what in field.metadata:
                    yield f"{what} of column {field.name}"

    def _refuse(self, unsupported: Iterator[str] | tuple[str, ...], what: str) -> None:
        names = ", ".join(dict.fromkeys(unsupported))
        if names:
            raise ConnectError(
                f"{self._who} cannot {what} {self.name}, which has {names}: {what} a table without, or let another "
                "engine do it"
            )

    def committed(self, writer: str) -> int:
        """Return the last checkpoint that the writer committed according to the log, or -1."""
        version = self._table.transaction_version(writer)
        return -1 if version is None else int(version)

    def add(self, files: Sequence[Added]) -> None:
        """Commit files and their transaction identifiers in one transaction.

        Raises:
            Busy: Another writer changed the table.
            ConnectError: The table cannot be written.
        """
        deltalake, actions = self._library, []
        for file in files:
            about = os.stat(file.file)
            stats = json.dumps({"numRecords": file.rows})
            name, of = file.file.relative_to(self.root).as_posix(), dict(zip(self._by, file.key, strict=True))
            actions.append(
                deltalake.transaction.AddAction(name, about.st_size, of, int(about.st_mtime * 1000), True, stats)
            )
        marks = [deltalake.Transaction(*mark) for mark in marks_of(files).items()]
        mark = deltalake.CommitProperties(app_transactions=marks)
        try:
            self._table.create_write_transaction(actions, "append", self._table.schema(), commit_properties=mark)
            self._sync()
        except deltalake.exceptions.CommitFailedError as error:
            raise Busy(
                f"{self.name} rejects the files of {files[0].writer}, because other writers change it concurrently "
                f"({one_line(str(error), 200)}). The rows are safe, and are committed again once the topology "
                "continues"
            ) from None
        except (deltalake.exceptions.DeltaError, OSError) as error:
            raise ConnectError(
                f"{self._who} cannot commit to {self.name} ({one_line(str(error), 300)}): check its folder (rights, "
                "room). The rows are safe, and are committed again once the topology continues"
            ) from None

    def _sync(self) -> None:
        """Flush new log files to disk, as the library does not do so."""
        log = Path(self._path, "_delta_log")
        version = self.version + 1
        while (commit := log / f"{version:020d}.json").exists():
            with commit.open("rb") as file:
                os.fsync(file.fileno())
            version += 1
        sync_folder(log)


NULL = "__HIVE_DEFAULT_PARTITION__"


def _moment(value: dt.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(" ", "microseconds")
    return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat("T", "microseconds") + "Z"


TEXT: dict[type[Any], Callable[[Any], str]] = {
    str: str, int: str, bool: lambda value: str(value).lower(), dt.date: dt.date.isoformat, dt.datetime: _moment,
}  # fmt: skip


def refused(columns: Sequence[str], schema: Any) -> Iterator[str]:
    """Yield the reasons why a table with these partition columns cannot be written."""
    for name in columns:
        column = column_of(schema.field(name))
        if column.python not in TEXT:
            yield f"the column {column} as a partition (the types are str, int, bool, date and datetime)"
        if "/" in name:
            yield f"the column {name} as a partition's folder"
    if columns and len(columns) == len(schema):
        yield "no column but those of partitions"


class DeltaPartitions(Partitions):
    """Partitions of a Delta table whose partition columns were accepted by ``refused``."""

    def __init__(self, columns: Sequence[str], schema: Any) -> None:
        super().__init__(", ".join(str(column_of(schema.field(name))) for name in columns), columns, schema)
        self.apart = frozenset(columns)

    def of(self, values: Sequence[Any]) -> Place:
        """Return the partition of the columns' values. Raises Unfit."""
        key: list[str | None] = []
        for name, value in zip(self.columns, values, strict=True):
            if value == "":
                raise Unfit(name, value, "the table is partitioned by this column, where the format reads it as null")
            try:
                key.append(None if value is None else TEXT[type(value)](value))
            except OverflowError:
                raise Unfit(name, value, "in UTC it is before the year 1, or after 9999") from None
        named = (NULL if text is None else quote(text, safe="") for text in key)
        return Place("/".join(f"{name}={text}" for name, text in zip(self.columns, named, strict=True)), tuple(key))
