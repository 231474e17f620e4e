"""Spout of files.

Each file is a split, which belongs to one task by a hash of its name. It is read piece by piece. Its position is where
the next piece begins, and whether the file has been read to its final end.

A folder that does not grow is listed once, and this list stays the same after a restore. Its files are read one after
the other, in order, so that files named by time come in time order.

A folder that grows is scanned five times a second; at a URL, every five seconds. Text, json and csv files are read on
from their position, in stores that support appends. Files present at first are read one by one as well. Only after a
file is read to the end that it had then is one piece of each file read in turn. Files named by time thus stay in time
order, and a file that grows fast does not starve the others.

At a URL the position of a file that does not grow includes its version (trees.py), as of the first listing. The
positions thus state where a source that does not grow ends. A file that was changed meanwhile is an error, also after a
restore.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.reading import FilePiece, Reader, grows_at, listing_of, open_reader
from heronry.streamlet.trees import Listing, tree_of, whole_name

SCAN_SHARE = 20  # the pause between scans is at least this many times the duration of a scan
MAX_OPEN = 64  # limit of open files, of those that grow


LISTED = "listed"  # key in the task's state: the files of a folder that does not grow are known


class Position(NamedTuple):
    """Read position of a file.

    Attributes:
        offset: Where the next piece begins, in bytes or rows.
        number: Number of the first record of the next piece.
        whole: True if the file is read to its end.
        version: Version of the file, at a URL.
    """

    offset: int
    number: int
    whole: bool = False
    version: str = ""


BEGIN = Position(0, 0)


class FileSpout(SourceSpout):
    """Task of a file source."""

    _there: Listing  # result of the last listing
    _listed: list[str]  # files of a source that does not grow

    def splits(self) -> list[str]:
        """Return the names of the files."""
        if not self._source.grows:
            return self._listed
        self._there = listing_of(self._source, self._tree)
        return sorted(self._there)

    def union_state(self, states: list[dict[Any, Any]]) -> None:
        """Merge the state of all tasks: a list made by one task is valid for all."""
        self.state.update({LISTED: True} if any(state.get(LISTED) for state in states) else {})

    def open(self) -> None:
        """List the files."""
        source = self.step.source
        assert isinstance(source, FileSource)
        self._source = source
        self._tree = tree_of(source)
        self._there = {}
        self._size: dict[str, int] = {}  # sizes of files that grow, as of the last scan
        self._refused: set[str] = set()  # files that are shorter or changed, and were reported
        self._readers: dict[str, Reader] = {}
        self._turn: deque[str] = deque()
        self._scan_again_at = 0.0
        self._caught_up = False
        if not source.grows:
            if not self.state.get(LISTED):
                self._there = self._look()
            self._listed = sorted(self.keyed) if self.state.get(LISTED) else sorted(self._there)
            for name in self.owned_splits():
                self.keyed.setdefault(name, tuple(self._begin(name)))
            self.state[LISTED] = True
        self._scan()

    def _position(self, name: str) -> Position:
        found = self.keyed.get(name)
        return self._begin(name) if found is None else Position(*found)

    def _begin(self, name: str) -> Position:
        """Return the initial position of a file."""
        grows = grows_at(self._source, name, self._tree)
        return BEGIN if grows or name not in self._there else BEGIN._replace(version=self._there[name].version)

    def _look(self) -> Listing:
        """Return the listing.

        A task may not see the same files as the submitting process, so the error for a missing path suggests a remedy.
        """
        try:
            return listing_of(self._source, self._tree)
        except FileNotFoundError:
            path = self._source.path
            cure = (
                "Look at the URL (memory:// is each process's own)"
                if is_url(path)
                else "In containers, mount it at the same path in all of them, or copy it there"
            )
            raise FileNotFoundError(
                2, f"step {self.step.name!r}: no such file or directory on this task's host. {cure}", path
            ) from None

    def _scan(self) -> None:
        """Queue files that are new or have grown."""
        source = self._source
        began = self.clock()
        waiting = set(self._turn)
        for name in self.owned_splits():
            place = self._position(name)
            if place.whole or name in waiting:
                self._refuse_changed(name, place)
                if place.whole:
                    self.split_times.end(name)
                continue
            self.split_times.expect([name])
            if grows_at(source, name, self._tree):
                try:
                    size = self._tree.size(name)
                except FileNotFoundError:
                    self.split_times.end(name)
                    continue
                if size < place.offset and name not in self._refused:
                    self._refused.add(name)
                    self.log.error(
                        "%s is shorter than the part already read: nothing more is read until it is longer again. "
                        "Write new contents under a new name",
                        whole_name(source, name),
                    )
                if size <= place.offset:
                    self.split_times.empty(name, began)
                    continue
                if size != self._size.get(name):  # a last line without an end is not a record yet
                    self.split_times.resume(name)
                self._size[name] = size
            self._turn.append(name)
        now = self.clock()
        self._scan_again_at = now + max(self._tree.look_seconds, SCAN_SHARE * (now - began))

    def _refuse_changed(self, name: str, place: Position) -> None:
        """Report once a file that has changed since it was read."""
        now = self._there.get(name)
        if place.whole and now is not None and now.version != place.version and name not in self._refused:
            self._refused.add(name)
            self.log.error(
                "%s has changed since it was read: its new contents are not read. Give them a new name",
                whole_name(self._source, name),
            )

    def next_block(self) -> tuple[str, Any, tuple[Any, ...]] | None:
        """Return a piece of the file whose turn it is."""
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
            return name, (piece.next_offset, piece.next_number, False, begin.version), _values(name, piece)

    def _reader(self, name: str, begin: Position) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= MAX_OPEN:
                self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[name] = open_reader(
                self._source, name, begin.offset, begin.number, self._tree, begin.version
            )
        return reader

    def _leave(self, name: str, place: Position) -> None:
        """Close a file that is read as far as it goes."""
        self._readers.pop(name).close()
        if grows_at(self._source, name, self._tree):
            self.split_times.empty(name, self.clock())
        else:
            self.split_times.end(name)
            if place.version:
                self._tree.check(name, place.version)
            self.keyed[name] = tuple(place._replace(whole=True))

    def holds(self) -> bool:
        """Return True while more than one of the initial files remains.

        Folders by hour are in the order of event time, so they never hold.
        """
        if self._source.by_hour or self._source.format == "archive":
            return False
        if not self._source.grows:
            return len(self._turn) > 1
        self._caught_up = self._caught_up or len(self._turn) <= 1
        return not self._caught_up

    def at_end(self) -> bool:
        """Return True if the files do not grow, and all are read."""
        return not self._source.grows and not self._turn

    def close(self) -> None:
        """Close the files."""
        for reader in getattr(self, "_readers", {}).values():
            reader.close()
        if hasattr(self, "_tree"):
            self._tree.close()


def _values(name: str, piece: FilePiece) -> tuple[Any, ...]:
    return name, piece.first, 0, piece.header, piece.data
