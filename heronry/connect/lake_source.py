"""Rows of a table of a lake at one version, as a source: each data file is a split.

A version never changes, so what is read is fixed by its number; whoever submits a program that names none fixes the
newest (``LakeRows.fixed``). A position is the version and the rows of the file that were read; a file that a later
version has dropped is read as long as nobody has removed it, and is an error that names it then. What a format has of
its own is a ``Snapshot``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from heron_runtime.failures import one_line
from heronry.connect.acked import Row
from heronry.connect.arrow_times import columns_in_utc
from heronry.connect.lake import column_of
from heronry.connect.polling import PollingSource, Range, Reader
from heronry.connect.settings import BadConfig, ConnectError, Option

ROWS_A_READ = 4096


class Snapshot(ABC):
    """A table at a version, as far as some fields are read. ``name``: for people; ``schema``: Arrow's."""

    name: str
    version: int
    schema: Any

    @abstractmethod
    def files(self) -> list[str]:
        """The names of its data files, in order."""

    @abstractmethod
    def rows(self, file: str) -> int:
        """How many a file has. Raises OSError, ValueError (Arrow's errors are) if that cannot be read."""

    @abstractmethod
    def batches(self, file: str) -> Iterator[Any]:
        """Its rows in order, the fields as columns in theirs. Raises OSError, ValueError."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what it holds; it may be used again."""


class LakeRows(PollingSource):
    """Derive; say ``version_option``, write ``snapshot``."""

    version_option: ClassVar[Option]

    @classmethod
    def snapshot(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> Snapshot:
        """The newest without a version. Raises ConnectError."""
        raise NotImplementedError(f"{cls.__name__} has no snapshot(cls, config, fields, version)")

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> LakeReader:
        """Raises ConnectError."""
        given = dict(config)
        return LakeReader(lambda version: cls._carried(given, fields, version), cls.version_option.of(config))

    @classmethod
    def fixed(cls, config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
        """The newest version, unless one is named. Raises ConnectError."""
        if cls.version_option.of(config) is not None:
            return {}
        return {cls.version_option.key: cls._carried(config, fields, None).version}

    @classmethod
    def _carried(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> Snapshot:
        """Raises ConnectError, also for columns whose values are not carried, or that are not there."""
        found = cls.snapshot(config, fields, version)
        columns = {field.name: column_of(field) for field in found.schema}
        missing = [name for name in fields if name not in columns]
        if missing:
            raise ConnectError(
                f"{found.name} has no column {', '.join(missing)} at version {found.version}; it has "
                f"{', '.join(columns)}"
            )
        refused = [str(columns[name]) for name in fields if not columns[name].is_read]
        if refused:
            raise ConnectError(
                f"{found.name} has the column {', '.join(refused)}, of a type that is not carried: leave it out of the "
                "fields"
            )
        return found

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        if config.get(self.version_option.key) is None:
            raise BadConfig(
                f"{type(self).__name__} needs config {self.version_option.key!r}: a restart must read the same"
            )
        super().initialize(config, context)


class LakeReader(Reader):
    """Without a version it reads the newest, or that of the range that is asked for. A position: version, row."""

    def __init__(self, open_at: Callable[[int | None], Snapshot], version: int | None) -> None:
        """Raises ConnectError."""
        self._open_at, self._wanted = open_at, version
        self._use(open_at(version))
        self._reading: tuple[str, int, Iterator[Any]] | None = None  # split, next row, batches behind it

    def _use(self, snapshot: Snapshot) -> None:
        self._snapshot, self._files = snapshot, frozenset(snapshot.files())

    def _at(self, place: Any) -> Snapshot:
        """The table at a position. Raises ConnectError."""
        if place is not None and place[0] != self._snapshot.version:
            if self._wanted is not None:
                raise ConnectError(
                    f"{self._snapshot.name} was being read at version {place[0]}, and version {self._wanted} is asked "
                    "for now: go on with the first, or begin anew"
                )
            self._use(self._open_at(place[0]))
        return self._snapshot

    def splits(self) -> list[str]:
        """The names of data files."""
        return self._snapshot.files()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """All rows of the file. Raises ConnectError."""
        snapshot = self._at(begin)
        self._look_for(split)
        try:
            rows = snapshot.rows(split)
        except (OSError, ValueError) as error:
            raise self._gone(split, error) from None
        return Range(split, begin, (snapshot.version, rows)) if rows > (0 if begin is None else begin[1]) else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Some rows. Raises ConnectError."""
        snapshot = self._at(begin or end)
        row = 0 if begin is None else begin[1]
        if end is not None and row >= end[1]:
            return None
        if self._reading is None or self._reading[:2] != (split, row):
            self._look_for(split)
            self._reading = split, row, _behind(snapshot.batches(split), row)
        batches = self._reading[2]
        try:
            batch = next(batches, None)
        except (OSError, ValueError) as error:
            raise self._gone(split, error) from None
        if batch is None:
            self._reading = None
            return None
        self._reading = split, row + batch.num_rows, batches
        columns = [column.to_pylist() for column in columns_in_utc(batch).columns]
        return list(zip(*columns, strict=True)), (snapshot.version, row + batch.num_rows)

    def _look_for(self, split: str) -> None:
        if split not in self._files:
            raise ConnectError(f"{self._snapshot.name} has no file {split} at version {self._snapshot.version}")

    def _gone(self, split: str, error: Exception) -> ConnectError:
        return ConnectError(
            f"file {split} of {self._snapshot.name} at version {self._snapshot.version} cannot be read "
            f"({one_line(str(error), 200)}): if it was removed (VACUUM, expired snapshots), that version is gone; name "
            "a newer one"
        )

    def close(self) -> None:
        """Let go of the file."""
        self._reading = None
        self._snapshot.close()


def _behind(batches: Iterator[Any], row: int) -> Iterator[Any]:
    """What lies behind the first rows, in pieces of some size."""
    before = 0
    for batch in batches:
        for first in range(max(0, row - before), batch.num_rows, ROWS_A_READ):
            yield batch.slice(first, ROWS_A_READ)
        before += batch.num_rows
