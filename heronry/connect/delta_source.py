"""Source of the rows of a Delta table at one version (``lake_source.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.delta import PATH, DeltaTable, path_problems
from heronry.connect.lake_source import LakeRows, Snapshot
from heronry.connect.settings import seconds, whole


class DeltaRows(LakeRows):
    """Source of the rows of the Delta table at ``user.delta.path``, as of version ``user.delta.version``.

    The fields are the columns named in ``optional_outputs``. Requires ``pip install heronry[delta]``.
    """

    example = "DeltaRows.spec(optional_outputs=['id', 'word'])"
    pause = seconds("user.delta.poll.secs", "how long to wait at the end, where nothing more will come", 5.0)
    version_option = whole("user.delta.version", "the version that is read", least=0)
    options = (PATH, version_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from path_problems(PATH, config)

    @classmethod
    def snapshot(cls, config: Mapping[str, Any], fields: tuple[str, ...], version: int | None) -> DeltaSnapshot:
        """Open the table at a version, or the newest. Raises ConnectError."""
        return DeltaSnapshot(DeltaTable(PATH.of(config), "delta", version).readable(), fields)


class DeltaSnapshot(Snapshot):
    """Snapshot of a Delta table, with the data files of its log as Arrow fragments."""

    def __init__(self, table: DeltaTable, fields: tuple[str, ...]) -> None:
        self.name, self.version, self.schema = table.name, table.version, table.schema
        self._fields = list(fields)
        self._fragments, self._read_by = table.fragments()

    def files(self) -> list[str]:
        """Return the paths of the data files, relative to the table."""
        return list(self._fragments)

    def rows(self, file: str) -> int:
        """Return the number of rows of a file, from its footer."""
        return int(self._fragments[file].count_rows())

    def batches(self, file: str) -> Iterator[Any]:
        """Yield the rows of a file as Arrow batches, including partition values."""
        scanner = self._fragments[file].scanner(schema=self._read_by, columns=self._fields, use_threads=False)
        yield from scanner.to_batches()

    def close(self) -> None:
        """Do nothing: a fragment's file is open only while it is read."""
