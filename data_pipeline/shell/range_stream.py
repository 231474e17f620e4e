"""Stream of the new ranges of splits of servers, as a Spark data source; the records themselves are not streamed.

It is for servers what Spark's stream of file names is for folders. Offsets record the position of each split
(``core/ranges.py``); Spark writes them into its checkpoint before a micro-batch begins. The scans read the ranges of a
micro-batch as a batch does (``servers.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from data_pipeline.core.failure import ServerFailed
from data_pipeline.core.ranges import Offset, between, end_of, latest, text_of
from heronry.connect.settings import ConnectError
from heronry.streamlet.servers import ServerSource

FORMAT = "heronry_ranges"
SCHEMA = "step string, path string"  # as for names of files; ``path`` is a range as JSON


def ranges_stream(spark: SparkSession, step: str, source: ServerSource) -> DataFrame:
    """Return a stream of the new ranges. Raises ConnectError or BadConfig if the server cannot be read now."""
    if source.fixed():
        raise ConnectError(
            f"step {step!r}: {source} is read by micro-batches at one version, over all runs of one CHECKPOINT: name "
            "it (version=…)"
        )
    with closing(source.open(_name(step))) as reader:
        for split in reader.splits():
            reader.bounds(split)
    spark.dataSource.register(RangeSource)
    return spark.readStream.format(FORMAT).option("step", step).option("source", _dumped(source)).load()


class RangeSource(DataSource):  # type: ignore[misc]  # PySpark has no types
    """Data source of ranges; Spark makes it from the options ``step`` and ``source``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema of the rows (see SCHEMA)."""
        return SCHEMA

    def streamReader(self, schema: Any) -> RangeReader:
        """Return the reader; Spark calls this when it plans the stream."""
        return RangeReader(self.options["step"], _loaded(self.options["source"]))


class RangeReader(DataSourceStreamReader):  # type: ignore[misc]  # PySpark has no types
    """Reader of ranges that connects for each call, so the server may be unavailable between calls."""

    def __init__(self, step: str, source: ServerSource) -> None:
        self._step, self._source = step, source

    def initialOffset(self) -> Offset:
        """Return the offset before any input."""
        return {}

    def latestOffset(self, start: Offset, limit: Any) -> Offset:
        """Return the offset at the current end of each split. Raises ServerFailed."""
        try:
            with closing(self._source.open(_name(self._step))) as reader:
                return latest(start, {split: reader.bounds(split, end_of(start, split)) for split in reader.splits()})
        except ConnectError as error:
            raise ServerFailed(self._step, str(error)) from None

    def commit(self, end: Offset) -> None:
        """Confirm to the server that Spark's checkpoint covers the input up to ``end``. Raises ServerFailed."""
        if not self._source.component.confirms:
            return
        try:
            with closing(self._source.open(_name(self._step))) as reader:
                for split in end:
                    reader.confirm(split, end_of(end, split))
        except ConnectError as error:
            raise ServerFailed(self._step, str(error)) from None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return at most one partition, since ranges are small."""
        ranges = between(start, end)
        return [InputPartition(list(map(text_of, ranges)))] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        """Yield a row for each range."""
        for text in partition.value:
            yield self._step, text


def _name(step: str) -> str:
    return f"heronry spark {step}"


def _dumped(source: ServerSource) -> str:
    return json.dumps([source.system, source.fields, source.settings])


def _loaded(text: str) -> ServerSource:
    system, fields, settings = json.loads(text)
    return ServerSource(system, tuple(fields), tuple((key, value) for key, value in settings))
