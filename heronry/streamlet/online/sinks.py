"""Sinks of a stage in one task: the writer of each sink, and the stream that it takes from a block.

The connector of a server is the one that bolts of topologies use. Its step is named as for those, by the topology and
the program's step. A record that the system cannot store is rejected when it is encoded, as by every writer. An
unreachable server, or a request that it rejects, is not the fault of a record, and returns the topology to its last
checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heronry.api.state import Checkpoint
from heronry.connect.seats import Seat
from heronry.connect.settings import ConnectError, step_name_of
from heronry.streamlet.endpoints import ArchiveSink, CollectSink, FileSink, ViewSink
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.chain import Streams
from heronry.streamlet.online.lines import JsonLines, lines_of
from heronry.streamlet.online.paged_writers import ArchiveWriter, PagedWriter
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


class ServerWriter:
    """Implementation of ``writers.Writer`` for servers. ``seat`` is that of the task, and includes the step's name."""

    def __init__(self, step: str, sink: ServerSink, seat: Seat) -> None:
        """Connect to the server.

        Raises:
            ConnectError: The connection failed.
            BadConfig: A setting is invalid.
        """
        self._step, self._sink = step, sink
        self._connector = sink.open(seat)

    def encode(self, block: Block) -> list[Any]:
        """Return the records in the form that the connector takes.

        Raises:
            StepFailed: The system cannot store a record.
        """
        encoded, made = self._sink.encoded, []
        for record in block.records:
            try:
                made.append(encoded(record))
            except (TypeError, ConnectError) as error:
                raise StepFailed(self._step, record) from error
        return made

    def take(self, encoded: list[Any]) -> None:
        """Stage the encoded records.

        Raises:
            ConnectError: The server could not be reached, or rejected them.
        """
        for each in encoded:
            self._connector.take(each)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Persist the staged records in the server, still invisible.

        Raises:
            ConnectError: The server could not be reached, or rejected them.
        """
        return self._connector.prepare(checkpoint) is not None

    def commit(self, token: str, certain: bool = False) -> None:
        """Make the records of `token` visible.

        Args:
            token: Token of the checkpoint.
            certain: True if records are known to have been prepared.

        Raises:
            ConnectError: Records are certain to have been prepared, and are lost, or the server could not be reached.
        """
        if certain or token in self._connector.prepared():
            self._connector.commit(int(token.split("-")[1]), token)

    def abort(self, token: str) -> None:
        """Discard the records of `token`."""
        self._connector.abort(token)

    def prepared(self) -> list[str]:
        """Return the tokens that are prepared and not committed, of all tasks of the step."""
        return list(self._connector.prepared())

    def close(self) -> None:
        """Discard everything that was not prepared, and close the connection."""
        self._connector.close()
