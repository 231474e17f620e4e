"""Rows of a Delta table at one version, as a source: each data file is a split.

A version never changes, so what is read is fixed by its number; whoever submits a program that names none fixes the
newest (``DeltaRows.fixed``). A position is the version and the rows of the file that were read; a file that a later
version has dropped is read as long as ``VACUUM`` has not removed it, and is an error that names it then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heron_runtime.failures import one_line
from heronry.connect.delta import PATH, DeltaTable, path_problems
from heronry.connect.lake import column_of
from heronry.connect.polling import PollingSource, Range, Reader, Row
from heronry.connect.settings import BadConfig, ConnectError, problems, seconds, whole

VERSION = whole("user.delta.version", "the version that is read", least=0)
ROWS_A_READ = 4096


class DeltaRows(PollingSource):
    """Emits the rows of the Delta table at ``user.delta.path`` as they were at ``user.delta.version``; the fields are
    the columns named in ``optional_outputs``. Needs ``pip install heronry[delta]``."""

    example = "DeltaRows.spec(optional_outputs=['id', 'word'])"
    pause = seconds("user.delta.poll.secs", "how long to wait at the end, where nothing more will come", 5.0)
    options = (PATH, VERSION)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from problems(cls.options, config)
        yield from path_problems(PATH, config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> DeltaReader:
        """Raises ConnectError."""
        return DeltaReader(PATH.of(config), VERSION.of(config), fields)

    @classmethod
    def fixed(cls, config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
        """The newest version, unless one is named. Raises ConnectError."""
        if VERSION.of(config) is not None:
            return {}
        return {VERSION.key: DeltaTable(PATH.of(config), "delta").readable(fields).version}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        if config.get(VERSION.key) is None:
            raise BadConfig(f"{type(self).__name__} needs config {VERSION.key!r}: a restart must read the same")
        super().initialize(config, context)


class DeltaReader(Reader):
    """Without a version it reads the newest, or that of the range that is asked for. A position: version, row."""

    def __init__(self, path: str, version: int | None, fields: tuple[str, ...]) -> None:
        self._path, self._wanted, self._fields = path, version, fields
        self._at: int | None = None
        self._open(version)
        self._reading: tuple[str, int, Iterator[Any]] | None = None  # split, next row, batches behind it

    def _open(self, version: int | None) -> None:
        if self._at is not None and version in (None, self._at):
            return
        if self._wanted is not None and version not in (None, self._wanted):
            raise ConnectError(
                f"delta: the table {self._path} was being read at version {version}, and version {self._wanted} is "
                "asked for now: go on with the first, or begin anew"
            )
        table = DeltaTable(self._path, "delta", version).readable(self._fields)
        carried = {field.name for field in table.schema if column_of(field).kind or str(field.type) == "float"}
        refused = [str(column_of(field)) for field in table.schema if field.name in {*self._fields} - carried]
        if refused:
            raise ConnectError(
                f"delta: the table {self._path} has the column {', '.join(refused)}, of a type that is not carried: "
                "leave it out of the fields"
            )
        self._fragments, self._schema = table.fragments()
        self._at = table.version

    def splits(self) -> list[str]:
        """The names of data files."""
        return list(self._fragments)

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """All rows of the file. Raises ConnectError."""
        self._open(None if begin is None else begin[0])
        rows = self._count(split)
        return Range(split, begin, (self._at, rows)) if rows > (0 if begin is None else begin[1]) else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Some rows. Raises ConnectError."""
        place = begin or end
        self._open(None if place is None else place[0])
        row = 0 if begin is None else begin[1]
        if end is not None and row >= end[1]:
            return None
        if self._reading is None or self._reading[:2] != (split, row):
            self._reading = split, row, self._behind(split, row)
        batches = self._reading[2]
        batch = self._next(split, batches)
        if batch is None:
            self._reading = None
            return None
        position = (self._at, row + batch.num_rows)
        self._reading = split, position[1], batches
        columns = [column.to_pylist() for column in batch.columns]
        return list(zip(*columns, strict=True)), position

    def _fragment(self, split: str) -> Any:
        if split not in self._fragments:
            raise ConnectError(f"delta: the table {self._path} has no file {split} at version {self._at}")
        return self._fragments[split]

    def _count(self, split: str) -> int:
        fragment = self._fragment(split)
        try:
            return int(fragment.count_rows())
        except (OSError, ValueError) as error:
            raise self._gone(split, error) from None

    def _behind(self, split: str, row: int) -> Iterator[Any]:
        """The batches of a file behind its first rows."""
        scanner = self._fragment(split).scanner(
            schema=self._schema, columns=list(self._fields), batch_size=ROWS_A_READ, use_threads=False
        )
        before = 0
        for batch in scanner.to_batches():
            rest = batch.slice(max(0, row - before))
            before += batch.num_rows
            if rest.num_rows:
                yield rest

    def _next(self, split: str, batches: Iterator[Any]) -> Any:
        try:
            return next(batches, None)
        except (OSError, ValueError) as error:  # those of Arrow are ValueErrors
            raise self._gone(split, error) from None

    def _gone(self, split: str, error: Exception) -> ConnectError:
        return ConnectError(
            f"delta: file {split} of the table {self._path} at version {self._at} cannot be read "
            f"({one_line(str(error), 200)}): if VACUUM has removed it, that version is gone; name a newer one"
        )

    def close(self) -> None:
        """Let go of the file."""
        self._reading = None
