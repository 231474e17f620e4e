"""Spout of files.

Each file is a split, which belongs to one task by a hash of its name or first line. It is read piece by piece. Its
position is where the next piece begins, and whether the file has been read to its final end.

A folder that does not grow is listed once, and this list stays the same after a restore. Its files are read one after
the other, in order, so that files named by time come in time order.

A folder that grows is scanned five times a second; at a URL, every five seconds. Text, json and csv files are read on
from their position, in stores that support appends. Files present at first are read one by one as well. Only after a
file is read to the end that it had then is one piece of each file read in turn. Files named by time thus stay in time
order, and a file that grows fast does not starve the others.

Files of lines that grow on this machine may be rotated (``heronry.connect.log_files``). They are splits by their inode,
and the version of a position is a fingerprint of the file's first bytes. A renamed file is continued. A file that was
truncated or rewritten is read from its beginning, and a copy of a file continues where that file was left. Records are
placed by the name that their file had at first, and another file of that name gets a suffix, so places stay unique.

At a URL the position of a file that does not grow includes its version (trees.py), as of the first listing. The
positions thus state where a source that does not grow ends. A file that was changed meanwhile is an error, also after a
restore.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from heronry.connect.log_files import (
    HEAD_BYTES,
    LogFile,
    Place,
    Rotation,
    begins_alike,
    is_intact,
    is_packed,
    list_files,
    place_at,
    split_of,
)
from heronry.streamlet.endpoints import FileSource, is_url
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.reading import LINES, FilePiece, LineReader, Reader, grows_at, listing_of, open_reader
from heronry.streamlet.trees import Listing, tree_of, whole_name

SCAN_SHARE = 20  # the pause between scans is at least this many times the duration of a scan
MAX_OPEN = 64  # limit of open files, of those that grow
MAX_GONE = 1000  # limit of removed files of which a copy is recognized, and of the names that are remembered


LISTED = "listed"  # key in the task's state: the files of a folder that does not grow are known
USED = "used"  # key in the task's state: names of files that were removed, renamed or truncated, the latest ones


class Position(NamedTuple):
    """Read position of a file.

    Attributes:
        offset: Where the next piece begins, in bytes or rows.
        number: Number of the first record of the next piece.
        whole: True if the file is read to its end.
        version: Version of the file at a URL, or fingerprint of a file that may be rotated.
        label: Name in the places of records, of a file that may be rotated.
    """

    offset: int
    number: int
    whole: bool = False
    version: str = ""
    label: str = ""


BEGIN = Position(0, 0)


class FileSpout(SourceSpout):
    """Task of a file source."""

    _there: Listing  # result of the last listing
    _listed: list[str]  # files of a source that does not grow
    _files: dict[str, LogFile]  # files that may be rotated, by split
    _names: dict[str, str]  # their names

    def splits(self) -> Sequence[str | tuple[str, int]]:
        """Return the names of the files, or inodes and numbers of files that may be rotated."""
        if not self._source.grows:
            return self._listed
        self._there = listing_of(self._source, self._tree)
        if not self._rotates:
            return sorted(self._there)
        paths = {Path(whole_name(self._source, name)): name for name in self._there}
        self._files = list_files(paths, self._files)
        self._names = {split: paths[file.path] for split, file in self._files.items()}
        return [(split, file.number) for split, file in self._files.items()]

    def union_state(self, states: list[dict[Any, Any]]) -> None:
        """Merge the state of all tasks: a list made by one task is valid for all."""
        self.state.update({LISTED: True} if any(state.get(LISTED) for state in states) else {})
        used = [name for state in states for name in state.get(USED, ())]
        self.state.update({USED: [*dict.fromkeys(used)]} if used else {})

    def open(self) -> None:
        """List the files."""
        source = self.step.source
        assert isinstance(source, FileSource)
        self._source = source
        self._tree = tree_of(source)
        self._there = {}
        self._rotates = source.grows and not is_url(source.path) and source.format in LINES
        self._files, self._names = {}, {}
        self._rotation = Rotation()
        self._known: dict[str, Position] = {}  # positions of such files, including removed ones
        self._holders: dict[str, str] = {}  # label to the file that records are placed in
        self._used = dict.fromkeys(self.state.get(USED, ()))
        self._followed = False  # True once they were listed
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
        position = self.keyed.get(name)
        return self._begin(name) if position is None else Position(*position)

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
        owned = self.owned_splits()
        self.split_times.end_missing(owned)
        for name in self._follow(owned) if self._rotates else owned:
            place = self._position(name)
            if place.whole or name in waiting:
                self._refuse_changed(name, place)
                if place.whole:
                    self.split_times.end(name)
                continue
            self.split_times.expect([name])
            if grows_at(source, self._name(name), self._tree):
                try:
                    size = self._tree.size(self._name(name))
                except FileNotFoundError:
                    self.split_times.end(name)
                    continue
                if size < place.offset and name not in self._refused and not self._rotates:
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

    def _name(self, split: str) -> str:
        """Return the name of the file that is a split."""
        return self._names.get(split, split)

    def _follow(self, owned: list[str]) -> list[str]:
        """Set the positions of files that are new, truncated or rewritten. Return the files that can be read."""
        for split in self._files:  # also of files of other tasks, after a restore
            if (stored := self.keyed.get(split)) is not None:
                self._holders[Position(*stored).label] = split
        self._known |= {split: Position(*stored) for split, stored in self.keyed.items()}
        gone = [split for split in self._known if split not in self._files]
        for split in gone[:-MAX_GONE]:
            del self._known[split]
        known = {split: position for split, position in self._known.items() if position.version}
        places = {split: _place(position) for split, position in known.items()}
        self._rotation.listed(self._files)
        readable = []
        for split in owned:
            file, position = self._files[split], self._position(split)
            if not position.version or not is_intact(_place(position), file):
                begin = self._beginning(file, known, places)
                if begin is None:
                    continue
                if split in self._readers:
                    self._readers.pop(split).close()
                self._known[split] = begin._replace(label=self._label(split, begin, position))
                self.keyed[split] = tuple(self._known[split])
            readable.append(split)
        for split, name in self._names.items():
            if self._holders.setdefault(name, split) != split:
                self._used[name] = None
        for label, split in list(self._holders.items()):
            if split not in self._files:
                self._used[label] = None
                del self._holders[label]
        if self._used:
            self._used = dict.fromkeys([*self._used][-MAX_GONE:])
            self.state[USED] = [*self._used]
        self._followed = True
        return readable

    def _label(self, split: str, begin: Position, before: Position) -> str:
        """Return the label of a file that begins now."""
        name = self._name(split)
        if self._holders.get(name, split) != split or (before.offset > 0 and not begin.offset):
            self._used[name] = None
        label, stamp = name, time.time_ns() // 1_000
        while label in self._used or self._holders.get(label, split) != split:
            label, stamp = f"{name}~{stamp:x}", stamp + 1
        self._holders[label] = split
        return label

    def _beginning(self, file: LogFile, known: dict[str, Position], places: dict[str, Place]) -> Position | None:
        """Return where to begin a file; None while it is unknown, or for a copy of a file that is still there."""
        former = None if self._followed else self.keyed.get(self._name(file.split))
        if former is not None:  # saved by name, by an earlier version of Heronry
            place = place_at(former[0], file.head)
            if is_intact(place, file):
                return Position(*former)._replace(version=_version(place))
        beginning = self._rotation.begin(file, places)
        if beginning is not None:
            number = next((known[split].number for split, place in places.items() if place == beginning), 0)
            return Position(beginning.offset, number, version=_version(beginning))
        alike = [split for split, place in places.items() if place.length and begins_alike(place, file.head)]
        if not alike and is_packed(file.path):
            return BEGIN._replace(version=_version(Place()))
        if is_packed(file.path) and file.split not in self._refused:
            self._refused.add(file.split)
            self.log.warning("%s is not read: it begins like %s, which was read", file.path, self._name(alike[0]))
        return None

    def _refuse_changed(self, name: str, place: Position) -> None:
        """Report once a file that has changed since it was read."""
        if self._rotates:
            return
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
            reader, version = self._reader(name, begin), begin.version
            piece = None if reader is None else reader.read()
            if self._rotates:
                head = None if reader is None else self._head(name, reader)
                if head is None or not begins_alike(_place(begin), head):  # replaced since the last scan
                    if reader is not None:
                        self._readers.pop(name).close()
                    self._turn.popleft()
                    self._scan_again_at = 0.0
                    return None
                version = version if piece is None else _version(place_at(piece.next_offset, head))
            if piece is None:
                self._turn.popleft()
                self._leave(name, begin)
                continue
            if grows and piece.next_offset >= self._size.get(name, piece.next_offset + 1):
                self._turn.rotate(-1)
            position = begin._replace(offset=piece.next_offset, number=piece.next_number, version=version)
            if self._rotates:
                self._known[name] = position
            return name, _saved(position), _values(begin.label or self._name(name), piece)

    def _head(self, split: str, reader: Reader) -> bytes | None:
        """Return the first bytes of an open file that may be rotated; None if it is no longer listed."""
        if isinstance(reader, LineReader) and grows_at(self._source, self._name(split), self._tree):
            return reader.head(HEAD_BYTES)
        return self._files[split].head if split in self._files else None

    def _reader(self, name: str, begin: Position) -> Reader | None:
        """Return a reader of a file; None if it was renamed or removed since the last scan."""
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= MAX_OPEN:
                self._readers.pop(next(iter(self._readers))).close()
            try:
                reader = open_reader(
                    self._source, self._name(name), begin.offset, begin.number, self._tree, begin.version
                )
                if self._rotates:
                    about = os.stat(whole_name(self._source, self._name(name)))
                    if split_of(about) != name:
                        reader.close()
                        return None
            except FileNotFoundError:
                if self._rotates:
                    return None
                raise
            self._readers[name] = reader
        return reader

    def _leave(self, name: str, place: Position) -> None:
        """Close a file that is read as far as it goes."""
        self._readers.pop(name).close()
        if grows_at(self._source, self._name(name), self._tree):
            self.split_times.empty(name, self.clock())
        else:
            self.split_times.end(name)
            if place.version:
                self._tree.check(name, place.version)
            self.keyed[name] = _saved(place._replace(whole=True))

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

    def pre_save(self, checkpoint_id: str) -> None:
        """List the files, so that copies get their positions before those of removed files are dropped."""
        if self._rotates:
            self._scan()

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


def _saved(position: Position) -> tuple[Any, ...]:
    """Return a position as it is saved, in the form of earlier versions if it has no label."""
    return tuple(position) if position.label else tuple(position)[:-1]


def _version(place: Place) -> str:
    return f"{place.length}-{place.digest}"


def _place(position: Position) -> Place:
    length, _, digest = position.version.partition("-")
    return Place(position.offset, int(length or 0), digest)
