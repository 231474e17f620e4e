"""Polling sources: one reader for all engines, and a spout that uses it.

A *reader* does not depend on an engine. It reads the splits of a system from a position up to the present end, or up to
an end that was fixed before. The spouts of this package and of streamlet programs read from position to position
indefinitely. Batch engines query the present end (``bounds``) and read up to it. A position consists of JSON values,
and means the same to every reader of one configuration. Data that is lost between two positions is an error, so a
reader that has reached an end has read everything before it.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from heron_runtime.model.settings import Keys, setting
from heronry.api.config import Config
from heronry.connect.acked import Row
from heronry.connect.settings import BadConfig, Option, problems, require, step_name
from heronry.connect.tracked import FOLDER, TrackedSource


class Range(NamedTuple):
    """Part of a split between two positions."""

    split: str
    begin: Any
    end: Any


class Reader(ABC):
    """Connection to a system whose splits are read by position. The position None means that nothing was read yet."""

    @abstractmethod
    def splits(self) -> list[str]:
        """Return the names of what can be read in parallel, always in the same order."""

    @abstractmethod
    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Return the next rows and the position after them.

        Args:
            split: Name of the split.
            begin: Position to read from.
            end: Position to read up to; None reads what is present.

        Returns:
            Rows in order and the position after them, or None if nothing follows (before ``end``). The rows may be
            empty if only the position has advanced.

        Raises:
            ConnectError: The system cannot be read, or data was removed before it was read.
        """

    @abstractmethod
    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """Return the range from ``begin`` to the present end of the split, or None if it is empty.

        Raises:
            ConnectError: The system cannot be read, or the split does not exist.
        """

    def confirm(self, split: str, position: Any) -> bool:
        """Allow the server to discard what lies before a position, because it will not be read again.

        Most servers do not need this, and the default does nothing.

        Returns:
            False if only an earlier position could be confirmed.

        Raises:
            ConnectError: The server cannot be reached.
        """
        del split, position
        return True

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Confirming:
    """Confirmation of positions by reliability mode.

    Positions of a checkpoint are confirmed once it is complete. With ATMOST_ONCE, rows are confirmed before they are
    returned.
    """

    def __init__(self, reader: Reader, config: Mapping[str, Any]) -> None:
        self._reader = reader
        self._first = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.ATMOST_ONCE
        self._saved: dict[int, dict[str, Any]] = {}  # positions, by checkpoint

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Read as the reader does. With ATMOST_ONCE, confirm rows before they are returned. Raises ConnectError."""
        rows: list[Row] = []
        batch = None
        while (more := self._reader.read(split, begin, end)) is not None:
            some, begin = batch = more
            if not self._first:
                return batch
            rows += some
            if end is not None or self._reader.confirm(split, begin):
                break
        return None if batch is None else (rows, begin)

    def saved(self, checkpoint: str, positions: Mapping[str, Any]) -> None:
        """Record the positions of a checkpoint that begins."""
        self._saved[int(checkpoint)] = dict(positions)

    def complete(self, checkpoint: str) -> None:
        """Confirm the positions of a completed checkpoint, and drop those of earlier ones. Raises ConnectError."""
        for split, position in self._saved.get(int(checkpoint), {}).items():
            self._reader.confirm(split, position)
        self._saved = {number: saved for number, saved in self._saved.items() if number > int(checkpoint)}


def rows_of(reader: Reader, wanted: Range) -> Iterator[list[Row]]:
    """Yield all rows of a range, page by page. Raises ConnectError."""
    position = wanted.begin
    while (batch := reader.read(wanted.split, position, wanted.end)) is not None:
        rows, position = batch
        if rows:
            yield rows


class PollingSource(TrackedSource):
    """Base class of sources that read splits in turn, and wait while none has new rows.

    Subclasses set ``example``, ``pause`` and ``options``, and implement ``reader``.
    """

    example: ClassVar[str]  # shown in the error for missing fields
    pause: ClassVar[Option]
    options: ClassVar[tuple[Option, ...]]
    #: Whether the server retains data until it is confirmed (``Reader.confirm``).
    confirms: ClassVar[bool] = False

    @classmethod
    def settings(cls) -> set[str]:
        """Return the keys of the source's options."""
        return {option.key for option in cls.options}

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((*cls.options, FOLDER), config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """Return a reader of the given fields.

        Args:
            config: The topology's configuration.
            fields: Names of the fields to read.
            name: Client name to report to the server.

        Raises:
            ConnectError: The system cannot be read.
        """
        raise NotImplementedError

    @classmethod
    def fixed(cls, config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
        """Return options to fix at submission for all tasks, so that restarts read the same. Raises ConnectError."""
        return {}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, open the reader and restore the positions. Raises BadConfig, ConnectError."""
        require(self, config)
        fields = fields_of(context, self.example)
        self._poll_secs = self.pause.of(config)
        self._owned: list[str] | None = None
        self._turn = 0
        self._ask_at = float("-inf")  # immediately; ``_poll_secs`` after a round without rows
        self._reader = self.reader(config, fields, f"heronry {step_name(context)} {context.get_task_id()}")
        self._confirming = Confirming(self._reader, config)
        if self.confirms:
            self.begin_tracking(config, context, self._poll_secs, is_kept=True)
        else:
            self.begin_tracking(config, context)

    def splits(self) -> list[tuple[str, int]]:
        """Return the splits with their numbers. They do not change until the next start."""
        return [(name, number) for number, name in enumerate(self._reader.splits())]

    def next_tuple(self) -> None:
        """Emit rows of the next split that has new ones."""
        self.settle()
        if time.monotonic() < self._ask_at or not self.has_room():
            return
        if self._owned is None:
            self._owned = self.owned_splits()
        for step in range(len(self._owned)):
            if self._read(self._owned[(self._turn + step) % len(self._owned)]):
                self._turn += step + 1
                return
        self._ask_at = time.monotonic() + self._poll_secs

    def _read(self, split: str) -> bool:
        """Emit the next rows of a split and store its position. Return False if nothing follows."""
        batch = self._confirming.read(split, self.position_of(split))
        if batch is None:
            return False
        rows, position = batch
        self.emit_page(split, rows, position)
        return True

    def confirm(self, safe: Iterable[tuple[str, Any]]) -> None:
        """Confirm safe positions to the server. Raises ConnectError."""
        for split, position in safe:
            self._reader.confirm(split, position)

    def pre_save(self, checkpoint_id: str) -> None:
        """Record the present positions for a checkpoint."""
        self._confirming.saved(checkpoint_id, self.keyed)

    def post_save(self, checkpoint_id: str) -> None:
        """Confirm the positions of a completed checkpoint. Raises ConnectError."""
        self._confirming.complete(checkpoint_id)

    def close(self) -> None:
        """Save safe positions, and close the reader."""
        if hasattr(self, "_reader"):
            super().close()
            self._reader.close()


def fields_of(context: Any, example: str) -> tuple[str, ...]:
    """Return the fields that a source is configured to read. Raises BadConfig, with the example, if there are none."""
    try:
        return tuple(context.get_fields(context.get_component_id(), "default"))
    except KeyError:
        raise BadConfig(f"{example.partition('.')[0]} has no fields: name those that it reads, {example}") from None
