"""The sinks of a stage in one task: which writer each has, and what of a block it takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from heronry.streamlet.endpoints import ArchiveSink, CollectSink, DeltaTableSink, FileSink, ViewSink
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.column_writers import ArchiveWriter
from heronry.streamlet.online.lake_writer import LakeWriter, writable_delta
from heronry.streamlet.online.lines import JsonLines, lines_of
from heronry.streamlet.online.paged_writers import PagedWriter
from heronry.streamlet.online.writers import TaskOf, TextWriter, Writer
from heronry.streamlet.program import Program, Ref, SinkStep


class SinkSet:
    """The sinks of one stage in one task."""

    def __init__(self, program: Program, steps: tuple[str, ...], task: TaskOf) -> None:
        self._readers: list[tuple[Ref, Writer]] = []
        for name in steps:
            step = program.by_name[name]
            if isinstance(step, SinkStep) and not isinstance(step.sink, ViewSink):
                self._readers.append((step.input, _writer(step, task, program)))
        self.writers = [writer for _, writer in self._readers]

    def add(self, streams: Streams) -> None:
        """Give each sink its stream. Raises StepFailed; then no sink has taken anything."""
        blocks = [(writer, streams.get(ref)) for ref, writer in self._readers]
        encoded = [(writer, writer.encode(block)) for writer, block in blocks if block is not None and block.records]
        for writer, ready in encoded:
            writer.take(ready)


def _writer(step: SinkStep, task: TaskOf, program: Program) -> Writer:
    sink = step.sink
    if isinstance(sink, ArchiveSink):
        return ArchiveWriter(step, sink, task)
    if isinstance(sink, CollectSink):
        return TextWriter(step.name, task.folder / "collect" / step.name, task, JsonLines(step.name))
    if isinstance(sink, DeltaTableSink):
        return LakeWriter(step.name, Path(sink.path), task, partial(writable_delta, sink.path))
    assert not isinstance(sink, ViewSink)
    if not isinstance(sink, FileSink):
        made: Writer = sink.writer(step.name, str(task.number), task.folder)
        return made
    if sink.format == "parquet" or sink.partition_by:
        return PagedWriter(step, sink, task, program.schema_at(step.input))
    return TextWriter(step.name, Path(sink.path), task, lines_of(step.name, sink))
