"""Source of the rows of a lake table at one version; each data file is a split.

A version never changes, so its number fixes what is read. If a program names no version, the newest one is fixed at
submission (``LakeRows.fixed``). A position consists of the version and the number of rows of the file that were read. A
file that a later version has dropped is still read until it is removed, which then is an error that names the file.
Table formats implement ``Snapshot``.
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
    """Lake table at one version, restricted to some fields.

    Attributes:
        name: Description of the table, for messages.
        version: The version.
        schema: Arrow schema.
    """

    name: str
    version: int
    schema: Any

    @abstractmethod
    def files(self) -> list[str]:
        """Return the names of the data files, in order."""

    @abstractmethod
    def rows(self, file: str) -> int:
        """Return the number of rows of a file. Raises OSError, or ValueError (the base of Arrow's errors)."""

    @abstractmethod
    def batches(self, file: str) -> Iterator[Any]:
        """Yield the rows of a file in order, with columns in the order of the fields. Raises OSError, ValueError."""

    @abstractmethod
    def close(self) -> None:
        """Release resources. The snapshot may be used again."""


class LakeRows(PollingSource):
    """Base class of sources for lake tables. Subclasses set ``version_option`` and implement ``snapshot``."""

    version_option: ClassVar[Option]

    @classmethod
    def snapshot(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> Snapshot:
        """Open the table at a version; None opens the newest. Raises ConnectError."""
        raise NotImplementedError(f"{cls.__name__} has no snapshot(cls, config, fields, version)")

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> LakeReader:
        """Return a reader of the table. Raises ConnectError."""
        given = dict(config)
        return LakeReader(lambda version: cls._carried(given, fields, version), cls.version_option.of(config))

    @classmethod
    def fixed(cls, config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
        """Return the option for the newest version, or {} if a version is configured. Raises ConnectError."""
        if cls.version_option.of(config) is not None:
            return {}
        return {cls.version_option.key: cls._carried(config, fields, None).version}

    @classmethod
    def _carried(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> Snapshot:
        """Open a snapshot and check that its columns exist and have supported types. Raises ConnectError."""
        snapshot = cls.snapshot(config, fields, version)
        columns = {field.name: column_of(field) for field in snapshot.schema}
        missing = [name for name in fields if name not in columns]
        if missing:
            raise ConnectError(
                f"{snapshot.name} has no column {', '.join(missing)} at version {snapshot.version}; it has "
                f"{', '.join(columns)}"
            )
        refused = [str(columns[name]) for name in fields if not columns[name].is_read]
        if refused:
            raise ConnectError(
                f"{snapshot.name} has the column {', '.join(refused)}, of a type that is not carried: leave it out of "
                "the fields"
            )
        return snapshot

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check that a version is configured, and open the table. Raises BadConfig, ConnectError."""
        if config.get(self.version_option.key) is None:
            raise BadConfig(
                f"{type(self).__name__} needs config {self.version_option.key!r}: a restart must read the same"
            )
        super().initialize(config, context)


class LakeReader(Reader):
    """Reader of a lake table. A position is a version and a row number.

    Without a version it reads the newest one, or that of the requested range.
    """

    def __init__(self, open_at: Callable[[int | None], Snapshot], version: int | None) -> None:
        """Open the table.

        Args:
            open_at: Function that opens the table at a version; None means the newest.
            version: The configured version, or None.

        Raises:
            ConnectError: The table cannot be opened.
        """
        self._open_at, self._wanted = open_at, version
        self._use(open_at(version))
        self._reading: tuple[str, int, Iterator[Any]] | None = None  # split, next row, remaining batches

    def _use(self, snapshot: Snapshot) -> None:
        self._snapshot, self._files = snapshot, frozenset(snapshot.files())

    def _at(self, place: Any) -> Snapshot:
        """Return the snapshot for a position. Raises ConnectError."""
        if place is not None and place[0] != self._snapshot.version:
            if self._wanted is not None:
                raise ConnectError(
                    f"{self._snapshot.name} was being read at version {place[0]}, and version {self._wanted} is "
                    "requested now: continue with the first, or start without the old state"
                )
            self._use(self._open_at(place[0]))
        return self._snapshot

    def splits(self) -> list[str]:
        """Return the names of the data files."""
        return self._snapshot.files()

    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range of all remaining rows of a file. Raises ConnectError."""
        snapshot = self._at(begin)
        self._look_for(split)
        try:
            rows = snapshot.rows(split)
        except (OSError, ValueError) as error:
            raise self._gone(split, error) from None
        return Range(split, begin, (snapshot.version, rows)) if rows > (0 if begin is None else begin[1]) else None

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return rows after a position, and the position after them. See ``Reader``. Raises ConnectError."""
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
            f"({one_line(str(error), 200)}): if it was removed (VACUUM, expired snapshots), it no longer exists; name "
            "a newer version"
        )

    def close(self) -> None:
        """Close the file and the snapshot."""
        self._reading = None
        self._snapshot.close()


def _behind(batches: Iterator[Any], row: int) -> Iterator[Any]:
    """Yield the rows after the first ``row`` ones, in slices of at most ROWS_A_READ."""
    before = 0
    for batch in batches:
        for first in range(max(0, row - before), batch.num_rows, ROWS_A_READ):
            yield batch.slice(first, ROWS_A_READ)
        before += batch.num_rows
