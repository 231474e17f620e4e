"""Spout for sources on servers.

The spout reads its splits in turn. Each read becomes one block, and positions are those of the connector's reader.

A bounded source reads each split up to the end that the split had when a task first began to read it. That end is part
of the position, so it is unchanged after a restore. A split that was read to its end is not queried again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from heronry.connect.polling import Confirming
from heronry.connect.settings import step_name
from heronry.streamlet.online.rows import packed
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.servers import ServerSource


class Position(NamedTuple):
    """Read position of one split.

    Attributes:
        begin: Where the next read begins, in the reader's own form.
        number: Number of the next record within its split.
        end: Where reading ends. None for a source that grows.
        whole: True if the split is read to its end.
    """

    begin: Any = None
    number: int = 0
    end: Any = None
    whole: bool = False


class ServerSpout(SourceSpout):
    """Task of a source on a server."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Set up the task and connect.

        Raises:
            ConnectError: The connection failed.
        """
        self._name = f"heronry {step_name(context)} {context.get_task_id()}"  # the client name that the server sees
        super().initialize(config, context)
        self._confirming = Confirming(self._reader, config)

    def open(self) -> None:
        """Connect to the server.

        Raises:
            ConnectError: The connection failed.
        """
        source = self.step.source
        assert isinstance(source, ServerSource)
        self._source = source
        self._poll_secs = float(source.component.pause.of(source.config))
        self._ask_at = float("-inf")
        self._reader = source.open(self._name)
        self._turn = 0
        self._owned = self.owned_splits()
        self.split_times.expect(self._owned)

    def splits(self) -> list[tuple[str, int]]:
        """Return the splits with their numbers. Splits are assigned to tasks by number."""
        return [(name, number) for number, name in enumerate(self._reader.splits())]

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """Return the next block of the next split that has records.

        If no split has any, return None until the poll interval has passed.
        """
        if self.clock() < self._ask_at:
            return None
        for step in range(len(self._owned)):
            split = self._owned[(self._turn + step) % len(self._owned)]
            batch = self._read(split)
            if batch is not None:
                self._turn += step + 1
                position, values = batch
                return split, tuple(position), values
        self._ask_at = self.clock() + self._poll_secs
        return None

    def _read(self, split: str) -> tuple[Position, tuple[Any, ...]] | None:
        """Return the next block of a split, and the position after it. None without new records."""
        place = self._position(split)
        if place.whole:
            return None
        while (batch := self._confirming.read(split, place.begin, place.end)) is not None:
            rows, begin = batch
            place = place._replace(begin=begin, number=place.number + len(rows))
            if rows:
                return place, (split, place.number - len(rows), len(rows), b"", packed(rows))
            self.keyed[split] = tuple(place)
        if not self._source.grows:
            self.keyed[split] = tuple(place._replace(whole=True))
        self.split_times.empty(split, self.clock())
        return None

    def _position(self, split: str) -> Position:
        position = self.keyed.get(split)
        if position is None and not self._source.grows:
            wanted = self._reader.bounds(split)
            position = (None, 0, None, True) if wanted is None else (wanted.begin, 0, wanted.end, False)
            self.keyed[split] = position
        return Position() if position is None else Position(*position)

    def pre_save(self, checkpoint_id: str) -> None:
        """Register the current positions as those of this checkpoint. Applies to sources that grow."""
        if self._source.grows:
            positions = ((split, self._position(split).begin) for split in self.keyed)
            self._confirming.saved(checkpoint_id, {split: begin for split, begin in positions if begin is not None})

    def post_save(self, checkpoint_id: str) -> None:
        """Confirm the positions of a completed checkpoint.

        Raises:
            ConnectError: The server could not be reached, or rejected the confirmation.
        """
        self._confirming.complete(checkpoint_id)

    def holds(self) -> bool:
        """Return True while a bounded source has more than one split that is not read to its end."""
        return not self._source.grows and sum(not self._position(split).whole for split in self._owned) > 1

    def at_end(self) -> bool:
        """Return True if the source is bounded and each split is read to its end."""
        return not self._source.grows and all(self._position(split).whole for split in self._owned)

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "_reader"):
            self._reader.close()
