"""Sinks of a stage in one task: the writer of each sink, and the stream that it takes from a block."""

from __future__ import annotations

from pathlib import Path

from heronry.connect.settings import step_name_of
from heronry.streamlet.endpoints import ArchiveSink, CollectSink, FileSink, ViewSink
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.column_writers import ArchiveWriter
from heronry.streamlet.online.lines import JsonLines, lines_of
from heronry.streamlet.online.paged_writers import PagedWriter
from heronry.streamlet.online.server_writer import ServerWriter
from heronry.streamlet.online.writers import TaskOf, TextWriter, Writer
from heronry.streamlet.program import Program, Ref, SinkStep
from heronry.streamlet.server_sinks import ServerSink


class SinkSet:
    """Sinks of one stage in one task."""

    def __init__(self, program: Program, steps: tuple[str, ...], task: TaskOf) -> None:
        self._readers: list[tuple[Ref, Writer]] = []
        for name in steps:
            step = program.by_name[name]
            if isinstance(step, SinkStep) and not isinstance(step.sink, ViewSink):
                self._readers.append((step.input, _writer(step, task, program)))
        self.writers = [writer for _, writer in self._readers]

    def add(self, streams: Streams) -> None:
        """Give each sink its stream.

        Raises:
            StepFailed: A record cannot be written. No sink has taken anything then.
        """
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
    assert not isinstance(sink, ViewSink)
    if isinstance(sink, ServerSink):
        return ServerWriter(step.name, sink, task.seat._replace(step=step_name_of(task.seat.step, step.name)))
    if not isinstance(sink, FileSink):
        made: Writer = sink.writer(step.name, str(task.number), task.folder)
        return made
    if sink.format == "parquet" or sink.partition_by:
        return PagedWriter(step, sink, task, program.schema_at(step.input))
    return TextWriter(step.name, Path(sink.path), task, lines_of(step.name, sink))
