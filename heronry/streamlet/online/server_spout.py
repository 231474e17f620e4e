"""The source of a server: its splits in turn, a block for each read, positions as the connector's reader has them.

A source that does not grow is read to where each split ended when a task first began it; that end is part of its
position, so it stays the same after a restore, and a split that was read to it is not asked for again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from heronry.connect.polling import Confirming
from heronry.connect.settings import step_name
from heronry.streamlet.online.rows import packed
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.servers import ServerSource


class Position(NamedTuple):
    """Where the next read begins, the number of its first record, where it ends; ``whole``: there is none."""

    begin: Any = None
    number: int = 0
    end: Any = None
    whole: bool = False


class ServerSpout(SourceSpout):
    """One task of a server's source."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises ConnectError."""
        self._name = f"heronry {step_name(context)} {context.get_task_id()}"  # what the server sees
        super().initialize(config, context)
        self._confirming = Confirming(self._reader, config)

    def open(self) -> None:
        """Connect. Raises ConnectError."""
        source = self.step.source
        assert isinstance(source, ServerSource)
        self._source = source
        self._poll_secs = float(source.component.pause.of(source.config))
        self._ask_at = float("-inf")
        self._reader = source.open(self._name)
        self._turn = 0
        self._owned = self.owned_splits()

    def splits(self) -> list[tuple[str, int]]:
        """Dealt out among the tasks by number."""
        return [(name, number) for number, name in enumerate(self._reader.splits())]

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """What the next split has that has anything; nothing until it is time to ask again."""
        if self.clock() < self._ask_at:
            return None
        for step in range(len(self._owned)):
            split = self._owned[(self._turn + step) % len(self._owned)]
            found = self._read(split)
            if found is not None:
                self._turn += step + 1
                position, values = found
                return split, tuple(position), values
        self._ask_at = self.clock() + self._poll_secs
        return None

    def _read(self, split: str) -> tuple[Position, tuple[Any, ...]] | None:
        """The next block of a split, and the position behind it."""
        place = self._position(split)
        if place.whole:
            return None
        while (found := self._confirming.read(split, place.begin, place.end)) is not None:
            rows, begin = found
            place = place._replace(begin=begin, number=place.number + len(rows))
            if rows:
                return place, (split, place.number - len(rows), len(rows), b"", packed(rows))
            self.keyed[split] = tuple(place)
        if not self._source.grows:
            self.keyed[split] = tuple(place._replace(whole=True))
        return None

    def _position(self, split: str) -> Position:
        found = self.keyed.get(split)
        if found is None and not self._source.grows:
            wanted = self._reader.bounds(split)
            found = (None, 0, None, True) if wanted is None else (wanted.begin, 0, wanted.end, False)
            self.keyed[split] = found
        return Position() if found is None else Position(*found)

    def pre_save(self, checkpoint_id: str) -> None:
        """A source that grows: it will have the positions of now."""
        if self._source.grows:
            positions = ((split, self._position(split).begin) for split in self.keyed)
            self._confirming.saved(checkpoint_id, {split: begin for split, begin in positions if begin is not None})

    def post_save(self, checkpoint_id: str) -> None:
        """It is complete. Raises ConnectError."""
        self._confirming.complete(checkpoint_id)

    def holds(self) -> bool:
        """Of a source that ends: while several splits are not read to their ends."""
        return not self._source.grows and sum(not self._position(split).whole for split in self._owned) > 1

    def at_end(self) -> bool:
        """True when each split that does not grow is read to its end."""
        return not self._source.grows and all(self._position(split).whole for split in self._owned)

    def close(self) -> None:
        """Let go of the connection."""
        if hasattr(self, "_reader"):
            self._reader.close()
