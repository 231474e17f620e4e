"""Writer of a sink on a server, in one task: the two phases of its connector, under the tokens of the task.

The connector is the one that bolts of topologies use. Its step is named as for those, by the topology and the program's
step. A record that the system cannot store is rejected when it is encoded, as by every writer. An unreachable server,
or a request that it rejects, is not the fault of a record, and returns the topology to its last checkpoint.
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
