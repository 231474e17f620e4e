"""Tuples into an Iceberg table, each once: one commit of its catalog for each checkpoint and task (``lake.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.iceberg import CATALOG, EXTRA, TABLE, IcebergTable, catalog_problems, end_threads
from heronry.connect.lake import writer_name
from heronry.connect.lake_sink import LakeSink, attempts_of, partitions_of


class IcebergSink(LakeSink):
    """Appends tuples as rows to the table ``user.iceberg.table`` of ``user.iceberg.catalog``, which must be there: its
    columns are the fields. Needs ``pip install heronry[iceberg]``. See ``docs/reference/connectors.md``."""

    folder_option = TABLE
    extra = EXTRA
    attempts_option = attempts_of("iceberg")
    partitions_option = partitions_of("iceberg")
    options = (CATALOG, attempts_option, partitions_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from catalog_problems(config)

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> IcebergTable:
        """Raises ConnectError."""
        return IcebergTable(CATALOG.of(config), TABLE.of(config), cls.__name__).known("write")

    def close(self) -> None:
        """What was not prepared is not kept."""
        super().close()
        end_threads()

    def forget(self) -> None:
        """Its mark, too, which else stays for ever; not one that others will sign with. Raises ConnectError."""
        super().forget()
        self.table_of(self._config).forget(writer_name(self._own_name, ""))
