"""Tuples into a Delta table, each once: one transaction of its log for each checkpoint and task (``lake.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.delta import EXTRA, PATH, DeltaTable, path_problems
from heronry.connect.lake_sink import LakeSink, attempts_of, partitions_of


class DeltaSink(LakeSink):
    """Appends tuples as rows to the Delta table at ``user.delta.path``, which must be there: its columns are the
    fields. Needs ``pip install heronry[delta]``. See ``docs/reference/connectors.md``."""

    folder_option = PATH
    extra = EXTRA
    attempts_option = attempts_of("delta")
    partitions_option = partitions_of("delta")
    options = (attempts_option, partitions_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from super().config_problems(config)
        yield from path_problems(PATH, config)

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> DeltaTable:
        """Raises ConnectError."""
        return DeltaTable(PATH.of(config), cls.__name__).writable()
