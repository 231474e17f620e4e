"""The source of files. Each file is a split, which belongs to one task by a hash of its name, and is read piece by
piece; its position is where the next piece begins, and whether it has been read to its end for good.

A folder that does not grow is listed once, and what was listed stays the list after a restore; files are read one after
the other, in order, so that files named by time come in time order. One that grows is looked through five times a
second; text, json and csv files are read on from where they were. What is there at first is read file by file, too, and
a piece of each file in turn only once it is read to where it then ended: files named by time stay in time order, and
none that grows fast starves the others.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.reading import Piece, Reader, grows_at, list_files, open_reader, path_of

SCAN_SECONDS = 0.2
SCAN_SHARE = 20  # a folder that takes long to look through is looked through less often: this many times as long
MAX_OPEN = 64  # files kept open, of those that grow


LISTED = "listed"  # in the task's state: the files of a folder that does not grow are known


class Position(NamedTuple):
    """Where the next piece begins: bytes or rows, and the number of its first record. ``whole``: there is none."""

    offset: int
    number: int
    whole: bool = False


BEGIN = Position(0, 0)


class FileSpout(SourceSpout):
    """One task of a file source."""

    def splits(self) -> list[str]:
        """The files there are."""
        return list_files(self._source) if self._source.grows else self._listed

    def union_state(self, states: list[dict[Any, Any]]) -> None:
        """What one task has listed, all have."""
        self.state.update({LISTED: True} if any(state.get(LISTED) for state in states) else {})

    def open(self) -> None:
        """List the files."""
        source = self.step.source
        assert isinstance(source, FileSource)
        self._source = source
        self._size: dict[str, int] = {}  # of files that grow, when they were last looked at
        self._shrunk: set[str] = set()
        self._readers: dict[str, Reader] = {}
        self._turn: deque[str] = deque()
        self._scan_again_at = 0.0
        if not source.grows:
            if not self.state.get(LISTED):
                self._look()
            self._listed = sorted(self.keyed) if self.state.get(LISTED) else list_files(source)
            for name in self.owned_splits():
                self.keyed.setdefault(name, tuple(BEGIN))
            self.state[LISTED] = True
        self._scan()

    def _position(self, name: str) -> Position:
        return Position(*self.keyed.get(name, BEGIN))

    def _look(self) -> None:
        """Say what is missing in words that help: what the submitter sees a task may not."""
        path = Path(self._source.path)
        if not path.exists():
            raise FileNotFoundError(
                2,
                f"step {self.step.name!r}: there is no such file or folder where this task runs. In containers, mount "
                "it at the same path in all of them, or copy it there",
                str(path),
            )

    def _scan(self) -> None:
        """Take up files that are new or have grown."""
        source = self._source
        began = self.clock()
        waiting = set(self._turn)
        for name in self.owned_splits():
            place = self._position(name)
            if place.whole or name in waiting:
                continue
            if grows_at(source, name):
                try:
                    size = path_of(source, name).stat().st_size
                except FileNotFoundError:
                    continue
                if size < place.offset and name not in self._shrunk:
                    self._shrunk.add(name)
                    self.log.error(
                        "%s is shorter than what was read of it: nothing more is read until it is longer again. Give "
                        "what is written anew a new name",
                        path_of(source, name),
                    )
                if size <= place.offset:
                    continue
                self._size[name] = size
            self._turn.append(name)
        now = self.clock()
        self._scan_again_at = now + max(SCAN_SECONDS, SCAN_SHARE * (now - began))

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """A piece of the file whose turn it is."""
        grows = self._source.grows
        while True:
            if grows and self.clock() >= self._scan_again_at:
                self._scan()
            if not self._turn:
                return None
            name = self._turn[0]
            begin = self._position(name)
            piece = self._reader(name, begin).read()
            if piece is None:
                self._turn.popleft()
                self._leave(name, begin)
                continue
            if grows and piece.next_offset >= self._size.get(name, piece.next_offset + 1):
                self._turn.rotate(-1)
            return name, (piece.next_offset, piece.next_number, False), _values(name, piece)

    def _reader(self, name: str, begin: Position) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= MAX_OPEN:
                self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[name] = open_reader(self._source, name, begin.offset, begin.number)
        return reader

    def _leave(self, name: str, place: Position) -> None:
        """The file is read as far as it goes."""
        self._readers.pop(name).close()
        if not grows_at(self._source, name):
            self.keyed[name] = (place.offset, place.number, True)

    def at_end(self) -> bool:
        """True for files that do not grow, all of which are read."""
        return not self._source.grows and not self._turn

    def close(self) -> None:
        """Let go of the files."""
        for reader in getattr(self, "_readers", {}).values():
            reader.close()


def _values(name: str, piece: Piece) -> tuple[Any, ...]:
    return name, piece.first, 0, piece.header, piece.data
