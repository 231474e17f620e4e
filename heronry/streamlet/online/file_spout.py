"""The source of files. Each file belongs to one task, by a stable hash of its name, and is read piece by piece.

A folder that does not grow is listed once; files are read one after the other, in order, so that files named by time
come in time order. One that grows is looked through five times a second; text, json and csv files are read on from
where they were. What is there at first is read file by file, too, and a piece of each file in turn only once it is read
to where it then ended: files named by time stay in time order, and none that grows fast starves the others.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from heron_runtime.model.keys import group_of
from heronry.streamlet.endpoints import FileSource
from heronry.streamlet.online.offsets import FilePosition, Span
from heronry.streamlet.online.source_spout import SourceSpout
from heronry.streamlet.packed import open_plain
from heronry.streamlet.reading import Piece, Reader, grows_at, list_files, open_reader, path_of

SCAN_SECONDS = 0.2
SCAN_SHARE = 20  # a folder that takes long to look through is looked through less often: this many times as long
MAX_OPEN = 64  # files kept open, of those that grow


class FileSpout(SourceSpout):
    """One task of a file source."""

    def open(self) -> None:
        """List the files."""
        source = self.step.source
        assert isinstance(source, FileSource)
        self._source = source
        self._place: dict[str, FilePosition] = {}
        self._size: dict[str, int] = {}  # of files that grow, when they were last looked at
        self._shrunk: set[str] = set()
        self._whole: set[str] = set()  # read to their end, and they do not grow
        self._readers: dict[str, Reader] = {}
        self._turn: deque[str] = deque()
        self._scan_again_at = 0.0
        self._look()
        self._scan()

    def _look(self) -> None:
        """Say what is missing in words that help: what the submitter sees a task may not."""
        path = Path(self._source.path)
        if not self._source.grows and not path.exists():
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
        for name in list_files(source):
            if name in self._whole or name in waiting or group_of(name) % self.of != self.index:
                continue
            place = self._place.setdefault(name, self.offsets.begin(name))
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

    def next_span(self) -> tuple[Span, tuple[Any, ...]] | None:
        """A piece of the file whose turn it is."""
        grows = self._source.grows
        while True:
            if grows and self.clock() >= self._scan_again_at:
                self._scan()
            if not self._turn:
                return None
            name = self._turn[0]
            begin = self._place[name]
            piece = self._reader(name, begin).read()
            if piece is None:
                self._turn.popleft()
                self._leave(name)
                continue
            if grows and piece.next_offset >= self._size.get(name, piece.next_offset + 1):
                self._turn.rotate(-1)
            end = self._place[name] = FilePosition(piece.next_offset, piece.next_number)
            return Span(name, begin, end), self._values(name, piece)

    def _reader(self, name: str, begin: FilePosition) -> Reader:
        reader = self._readers.get(name)
        if reader is None:
            if len(self._readers) >= MAX_OPEN:
                self._readers.pop(next(iter(self._readers))).close()
            reader = self._readers[name] = open_reader(self._source, name, *begin)
        return reader

    def _leave(self, name: str) -> None:
        """The file is read as far as it goes."""
        self._readers.pop(name).close()
        if not grows_at(self._source, name):
            self._whole.add(name)

    def again(self, span: Span) -> tuple[Any, ...]:
        """The very same bytes: a piece is cut where it was cut."""
        reader = open_reader(self._source, span.file, *span.begin)
        try:
            size = span.end.offset - span.begin.offset
            if span.begin.offset == 0 and self._source.format == "csv":
                # The header lies before the first piece.
                piece = reader.read(size - len(self._header_of(span)))
            else:
                piece = reader.read(size)
        finally:
            reader.close()
        assert piece is not None, f"{span} is not there any more"
        return self._values(span.file, piece)

    def _header_of(self, span: Span) -> bytes:
        with open_plain(path_of(self._source, span.file)) as file:
            return file.readline()

    def at_end(self) -> bool:
        """True for files that do not grow, all of which are read."""
        return not self._source.grows and not self._turn

    def _values(self, name: str, piece: Piece) -> tuple[Any, ...]:
        return name, piece.first, 0, piece.header, piece.data

    def close(self) -> None:
        """Write the offsets, let go of the files."""
        super().close()
        for reader in self._readers.values():
            reader.close()
