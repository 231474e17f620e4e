"""What sources share that ask a server for what is new: one reader for every engine, and a spout around it.

A *reader* knows no engine. It reads a system's splits from a position to what is there, or to an end that was fixed
before: the spouts of this room and of streamlet programs go on from position to position for ever; batch engines ask
where everything ends now (``bounds``), and read so far and no further. A position is plain (JSON holds it), and means
the same to each reader of one configuration. Whatever goes missing between two positions is an error, so what has been
read to an end is all that lay before it.
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
    """A part of a split, between two positions."""

    split: str
    begin: Any
    end: Any


class Reader(ABC):
    """One connection to a system. ``begin`` and ``end`` are positions; ``None`` as one: nothing was read yet."""

    @abstractmethod
    def splits(self) -> list[str]:
        """What can be read side by side, always in the same order."""

    @abstractmethod
    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """Rows that come next, in order, and the position behind them; None if there are none (before ``end``). Rows
        may be empty where the position has moved all the same. Raises ConnectError, also for what was removed before
        it was read."""

    @abstractmethod
    def bounds(self, split: str, begin: Any = None) -> Range | None:
        """From ``begin`` to where the split ends now; None if nothing is between. Raises ConnectError, also for what
        is not there at all."""

    def confirm(self, split: str, position: Any) -> bool:
        """Nobody will read again what lies before a position, so a server that keeps it for this reader alone may let
        it go; most keep it anyhow. False if that cannot be done as far as this, but only to somewhere before. Raises
        ConnectError."""
        del split, position
        return True

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection."""


class Confirming:
    """Confirms what checkpoints hold once they are complete; without checkpoints, what is read, before it is given."""

    def __init__(self, reader: Reader, config: Mapping[str, Any]) -> None:
        self._reader = reader
        self._first = setting(config, Keys.TOPOLOGY_RELIABILITY_MODE) == Config.ATMOST_ONCE
        self._saved: dict[int, dict[str, Any]] = {}  # positions, by checkpoint

    def read(self, split: str, begin: Any, end: Any = None) -> tuple[list[Row], Any] | None:
        """As the reader's. Where nothing may come twice, it is confirmed before it is given. Raises ConnectError."""
        rows: list[Row] = []
        found = None
        while (more := self._reader.read(split, begin, end)) is not None:
            some, begin = found = more
            if not self._first:
                return found
            rows += some
            if end is not None or self._reader.confirm(split, begin):
                break
        return None if found is None else (rows, begin)

    def saved(self, checkpoint: str, positions: Mapping[str, Any]) -> None:
        """A checkpoint begins, and will have these."""
        self._saved[int(checkpoint)] = dict(positions)

    def complete(self, checkpoint: str) -> None:
        """It is complete; those before it never will be. Raises ConnectError."""
        for split, position in self._saved.get(int(checkpoint), {}).items():
            self._reader.confirm(split, position)
        self._saved = {number: saved for number, saved in self._saved.items() if number > int(checkpoint)}


def rows_of(reader: Reader, wanted: Range) -> Iterator[list[Row]]:
    """All rows of a range, piece by piece. Raises ConnectError."""
    position = wanted.begin
    while (found := reader.read(wanted.split, position, wanted.end)) is not None:
        rows, position = found
        if rows:
            yield rows


class PollingSource(TrackedSource):
    """Splits in turn, and a wait when none has anything. Derive; say ``example``, ``pause`` and ``options``, and write
    ``reader``."""

    example: ClassVar[str]  # how its fields are named, for who has not
    pause: ClassVar[Option]
    options: ClassVar[tuple[Option, ...]]
    #: Whether the server keeps what is not confirmed (``Reader.confirm``).
    confirms: ClassVar[bool] = False

    @classmethod
    def settings(cls) -> set[str]:
        """The keys of its configuration."""
        return {option.key for option in cls.options}

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong in its options."""
        yield from problems((*cls.options, FOLDER), config)

    @classmethod
    def reader(cls, config: Mapping[str, Any], fields: tuple[str, ...], name: str) -> Reader:
        """A reader of these fields; ``name``: what the server shows of it. Raises ConnectError."""
        raise NotImplementedError

    @classmethod
    def fixed(cls, config: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
        """Settings that whoever submits a program settles for all its tasks, so that restarts read the same. Raises
        ConnectError."""
        return {}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        require(self, config)
        fields = fields_of(context, self.example)
        self._poll_secs = self.pause.of(config)
        self._owned: list[str] | None = None
        self._turn = 0
        self._ask_at = float("-inf")  # at once, and ``_poll_secs`` after nothing had anything
        self._reader = self.reader(config, fields, f"heronry {step_name(context)} {context.get_task_id()}")
        self._confirming = Confirming(self._reader, config)
        if self.confirms:
            self.begin_tracking(config, context, self._poll_secs, is_kept=True)
        else:
            self.begin_tracking(config, context)

    def splits(self) -> list[tuple[str, int]]:
        """The same until the next start."""
        return [(name, number) for number, name in enumerate(self._reader.splits())]

    def next_tuple(self) -> None:
        """Something of the next split that has any."""
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
        """Emit what comes next in a split, and keep its position; False if nothing does."""
        found = self._confirming.read(split, self.position_of(split))
        if found is None:
            return False
        rows, position = found
        self.emit_page(split, rows, position)
        return True

    def confirm(self, safe: Iterable[tuple[str, Any]]) -> None:
        """Tell the server. Raises ConnectError."""
        for split, position in safe:
            self._reader.confirm(split, position)

    def pre_save(self, checkpoint_id: str) -> None:
        """It will have the positions of now."""
        self._confirming.saved(checkpoint_id, self.keyed)

    def post_save(self, checkpoint_id: str) -> None:
        """It is complete. Raises ConnectError."""
        self._confirming.complete(checkpoint_id)

    def close(self) -> None:
        """The connection is closed."""
        if hasattr(self, "_reader"):
            super().close()
            self._reader.close()


def fields_of(context: Any, example: str) -> tuple[str, ...]:
    """What a source has been told to read. Raises BadConfig, with the example, if that is nothing."""
    try:
        return tuple(context.get_fields(context.get_component_id(), "default"))
    except KeyError:
        raise BadConfig(f"{example.partition('.')[0]} has no fields: name those that it reads, {example}") from None
