"""Exactly-once sink for an Iceberg table, with one commit for each checkpoint and task (``lake.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.iceberg import CATALOG, EXTRA, TABLE, IcebergTable, catalog_problems, end_threads
from heronry.connect.lake import writer_name
from heronry.connect.lake_sink import LakeSink, attempts_of, partitions_of


class IcebergSink(LakeSink):
    """Exactly-once sink that appends tuples as rows to the table ``user.iceberg.table`` of ``user.iceberg.catalog``.

    The table must exist, and its columns are the tuple's fields. Requires ``pip install heronry[iceberg]``.
    ``docs/reference/connectors.md`` describes all options.
    """

    folder_option = TABLE
    extra = EXTRA
    attempts_option = attempts_of("iceberg")
    partitions_option = partitions_of("iceberg")
    options = (CATALOG, attempts_option, partitions_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from catalog_problems(config)

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> IcebergTable:
        """Open the table for writing. Raises ConnectError."""
        return IcebergTable(CATALOG.of(config), TABLE.of(config), cls.__name__).check_support("write")

    def close(self) -> None:
        """Discard rows that are not prepared, and end the library's threads."""
        super().close()
        end_threads()

    def forget(self) -> None:
        """Delete staged files and the component's own marks, which would otherwise remain in the table forever.

        Marks of a stream, which later runs sign with, are kept. Raises ConnectError.
        """
        super().forget()
        self.table_of(self._config).forget(writer_name(self._own_name, ""))
