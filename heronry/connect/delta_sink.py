"""Exactly-once sink for a Delta table, with one transaction for each checkpoint and task (``lake.py``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heronry.connect.delta import EXTRA, PATH, DeltaTable, path_problems
from heronry.connect.lake_sink import LakeSink, attempts_of, partitions_of


class DeltaSink(LakeSink):
    """Exactly-once sink that appends tuples as rows to the Delta table at ``user.delta.path``.

    The table must exist, and its columns are the tuple's fields. Requires ``pip install heronry[delta]``.
    ``docs/reference/connectors.md`` describes all options.
    """

    folder_option = PATH
    extra = EXTRA
    attempts_option = attempts_of("delta")
    partitions_option = partitions_of("delta")
    options = (attempts_option, partitions_option)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from super().config_problems(config)
        yield from path_problems(PATH, config)

    @classmethod
    def table_of(cls, config: Mapping[str, Any]) -> DeltaTable:
        """Open the table for writing. Raises ConnectError."""
        return DeltaTable(PATH.of(config), cls.__name__).writable()
