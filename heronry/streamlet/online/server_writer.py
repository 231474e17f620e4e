"""A sink in a server, in one task: the two phases of its connector, under the tokens of the task.

The connector is the one that bolts of topologies use, and its step is named as theirs are, by the topology and the
program's step. A record that the system has no place for is refused when it is encoded, as by every writer; that a
server cannot be reached, or refuses, is no fault of a record, and takes the topology back to its last checkpoint.
"""

from __future__ import annotations

from typing import Any

from heronry.api.state import Checkpoint
from heronry.connect.seats import Seat
from heronry.connect.settings import ConnectError
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block
from heronry.streamlet.server_sinks import ServerSink


class ServerWriter:
    """What ``writers.Writer`` says. ``seat``: of the task, with the step's name in it."""

    def __init__(self, step: str, sink: ServerSink, seat: Seat) -> None:
        """Connects. Raises ConnectError, BadConfig."""
        self._step, self._sink = step, sink
        self._connector = sink.open(seat)

    def encode(self, block: Block) -> list[Any]:
        """What the connector takes. Raises StepFailed for a record that the system has no place for."""
        encoded, made = self._sink.encoded, []
        for record in block.records:
            try:
                made.append(encoded(record))
            except (TypeError, ConnectError) as error:
                raise StepFailed(self._step, record) from error
        return made

    def take(self, encoded: list[Any]) -> None:
        """Have them staged. Raises ConnectError."""
        for each in encoded:
            self._connector.take(each)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Have them safe in the server, unseen. Raises ConnectError."""
        return self._connector.prepare(checkpoint) is not None

    def commit(self, token: str, certain: bool = False) -> None:
        """Have them seen. ``certain``: something was prepared; raises ConnectError if that is lost."""
        if certain or token in self._connector.prepared():
            self._connector.commit(int(token.split("-")[1]), token)

    def abort(self, token: str) -> None:
        """They never will."""
        self._connector.abort(token)

    def prepared(self) -> list[str]:
        """Tokens that wait, of all tasks of the step."""
        return list(self._connector.prepared())

    def close(self) -> None:
        """Let go of what was not prepared, and of the server."""
        self._connector.close()
