"""Text file source and file sinks for JSON lines and CSV.

The source reads the lines of a growing folder. Each file is a split, identified by its inode. A position is the byte
offset after the last emitted line. The source does not emit a last line until its line end is written. Files may be
compressed or rotated, either by renaming or by copying and truncating (see ``log_files.py``).

The sinks write one file for each checkpoint and task (see ``spool.py``).
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import msgspec

from heronry.api.tuples import Tuple
from heronry.connect.log_files import (
    HEAD_BYTES,
    LogFile,
    Place,
    Rotation,
    begins_alike,
    is_intact,
    is_packed,
    list_files,
    open_file,
    place_at,
)
from heronry.connect.settings import ConnectError, Option, problems, require, text
from heronry.connect.spool import SpoolSink, cannot_hold
from heronry.connect.tracked import FOLDER as POSITIONS
from heronry.connect.tracked import TrackedSource

CHUNK_BYTES = 256 * 1024
LINES_A_CALL = 256
LIST_EACH_SECONDS = 0.5
LIST_SHARE = 20  # minimum pause between listings, in multiples of a listing's duration
FOLDER = text("user.files.folder", "folder of the files to read", required=True)
PATTERN = Option(
    "user.files.pattern",
    "which of its files, as in a shell",
    "a pattern of paths below the folder, like *.log, */*.log or **/*.log",
    lambda value: isinstance(value, str) and not PurePath(value).is_absolute() and ".." not in PurePath(value).parts,
    "*",
)


class FileLines(TrackedSource):
    """Source of the lines of all files in a folder, including files that are added later.

    Every task must be able to read the same folder. The source skips hidden files and folders. A compressed file must
    be a rotated copy of a file that was read before; any other one is an error.

    Options in ``config``:

    - ``user.files.folder``: the folder to read (required).
    - ``user.files.pattern``: glob pattern below the folder, ``*`` by default; ``*/*.log`` reads its subfolders.

    Fields: ``line`` (str). Bytes that are not valid UTF-8 become U+FFFD.
    """

    outputs = ("line",)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """Yield a message for each missing or invalid option."""
        yield from problems((FOLDER, PATTERN, POSITIONS), config)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Check the configuration, restore the positions and list the files.

        Raises:
            BadConfig: An option is missing or invalid.
            ConnectError: The folder does not exist, or contains a compressed file that is not a rotated copy.
        """
        require(self, config)
        self._folder = Path(FOLDER.of(config))
        self._pattern = PATTERN.of(config)
        self._turn = 0
        self._files: dict[str, LogFile] = {}
        self._owned: list[str] = []
        self._list_at = 0.0
        self._rotation = Rotation()
        self._known: dict[str, Place] = {}  # positions of read files, including removed ones
        self._ended: set[str] = set()  # compressed files that were read to the end
        self.begin_tracking(config, context)
        self._list()

    def splits(self) -> list[tuple[str, int]]:
        """List the present files, by inode. Hidden files are skipped, as they may be incomplete.

        Returns:
            Pairs of a split's name and its number.

        Raises:
            ConnectError: The folder does not exist.
        """
        if not self._folder.is_dir():
            raise ConnectError(
                f"FileLines reads {self._folder}, which is not a directory here: create it on every host of the "
                f"topology, or name another in config {FOLDER.key!r} (as an absolute path)"
            )
        paths = (path.relative_to(self._folder) for path in self._folder.glob(self._pattern) if path.is_file())
        names = (path for path in paths if not any(part.startswith(".") for part in path.parts))
        self._files = list_files(self._folder / path for path in names)
        return [(file.split, file.number) for file in self._files.values()]

    def next_tuple(self) -> None:
        """Emit up to LINES_A_CALL lines of the next file that has new lines."""
        self.settle()
        if not self.has_room():
            return
        if time.monotonic() >= self._list_at:
            self._list()
        owned = self._owned
        for step in range(len(owned)):
            split = owned[(self._turn + step) % len(owned)]
            if self._read(split):
                self._turn += step + 1
                return

    def _read(self, split: str) -> bool:
        place = self._place(split)
        if place is None or split not in self._files or split in self._ended:
            return False
        file_lines = lines_from(self._files[split].path, place)
        if file_lines is None:  # truncated or replaced since the last listing
            self._list()
            return False
        lines, behind = file_lines
        if lines:
            self.emit_page(split, [(line,) for line in lines], tuple(behind))
            self._known[split] = behind
        elif is_packed(self._files[split].path):
            self._ended.add(split)
        return bool(lines)

    def _place(self, split: str) -> Place | None:
        position = self.position_of(split)
        return None if position is None else Place(*position)

    def _list(self) -> None:
        """List the files, and determine the positions of new ones.

        Raises:
            ConnectError: The folder is missing, or a compressed file is not a rotated copy of a file that was read.
        """
        began = time.monotonic()
        owned = self.owned_splits()
        self._known |= self._kept()
        self._rotation.listed(self._files)
        known = dict(self._known)  # snapshot: the loop changes self._known
        for split in owned:
            place, file = self._place(split), self._files[split]
            if place is None or not is_intact(place, file):
                former = self._former(file) if place is None else None
                place = former or self._rotation.begin(file, known)
                if place is not None:
                    self.keyed[split] = tuple(place)
                    self._known[split] = place
                    self._ended.discard(split)
                elif is_packed(file.path) and not self._is_copy(file):
                    raise ConnectError(
                        f"{file.path} is compressed, and is not what became of a file that was read: unpack it, or "
                        f"leave it out by config {PATTERN.key!r}"
                    )
        self._owned = owned
        now = time.monotonic()
        self._list_at = now + max(LIST_EACH_SECONDS, LIST_SHARE * (now - began))

    def _former(self, file: LogFile) -> Place | None:
        """Return the position that an earlier version of Heronry saved under the file's name, if any."""
        position = self.position_of(file.path.relative_to(self._folder).as_posix())
        return place_at(position, file.head) if isinstance(position, int) else None

    def _kept(self) -> dict[str, Place]:
        positions = {**self._left, **self.keyed}
        return {split: Place(*place) for split, place in positions.items() if not isinstance(place, int)}

    def _is_copy(self, file: LogFile) -> bool:
        return any(place.length and begins_alike(place, file.head) for place in self._known.values())

    def pre_save(self, checkpoint_id: str) -> None:
        """List the files, so that rotated files inherit positions before those of removed files are dropped."""
        self._list()


def lines_from(path: Path, place: Place) -> tuple[list[str], Place] | None:
    """Return complete lines after a position, and the position after them.

    A line longer than CHUNK_BYTES is read completely.

    Returns:
        At most LINES_A_CALL lines and the new position, or None if the file was truncated or replaced.

    Raises:
        ConnectError: The file cannot be read.
    """
    try:
        return _lines_from(path, place)
    except FileNotFoundError:
        return [], place  # the file was removed; the next listing will not contain it
    except OSError as error:
        raise ConnectError(
            f"{path} cannot be read ({error.strerror or error}): make it readable for the user that the topology's "
            "code runs as"
        ) from error


def _lines_from(path: Path, place: Place) -> tuple[list[str], Place] | None:
    with open_file(path) as file:
        if not is_packed(path):
            size = os.fstat(file.fileno()).st_size
            if size < place.offset:
                return None
            if size == place.offset and size:
                return [], place  # a file rewritten with the same length is detected when it grows
        head = file.read(HEAD_BYTES)
        if not begins_alike(place, head):
            return None
        file.seek(place.offset)
        data = file.read(CHUNK_BYTES)
        while b"\n" not in data:
            more = file.read(CHUNK_BYTES)
            if not more:
                return [], place
            data += more
    ends = list(itertools.islice(_ends(data), LINES_A_CALL))
    whole = data[: ends[-1]]
    lines = whole.decode("utf-8", "replace").split("\n")[:-1]
    return [line.removesuffix("\r") for line in lines], place_at(place.offset + len(whole), head)


def _ends(data: bytes) -> Iterator[int]:
    at = data.find(b"\n")
    while at >= 0:
        yield at + 1
        at = data.find(b"\n", at + 1)


class JsonLinesSink(SpoolSink):
    """Sink that writes each tuple as a JSON object on a line of its own.

    It writes one file ``<name>.jsonl`` for each checkpoint and task into the folder that ``user.sink.folder`` of its
    ``config`` names. A file becomes visible when its checkpoint is complete.
    """

    suffix = ".jsonl"

    def encode(self, tup: Tuple) -> bytes:
        """Return the line for a tuple."""
        return json_object(self, tup.fields, tup.values) + b"\n"


class CsvSink(SpoolSink):
    """Sink that writes tuples as CSV lines (RFC 4180, UTF-8, a header in each file).

    The files are stored in ``user.sink.folder``, as those of ``JsonLinesSink``. None is written as an empty field, the
    empty string as ``""``, booleans as ``true`` and ``false``, and floats as their ``repr``.
    """

    suffix = ".csv"
    _fields: tuple[str, ...] = ()  # header of the current file

    def begin(self, file: BinaryIO) -> None:
        """Reset the header. It is written with the first tuple."""
        self._fields = ()

    def encode(self, tup: Tuple) -> bytes:
        """Return the line for a tuple, preceded by the header if it is the file's first.

        Raises:
            ConnectError: A value cannot be written as CSV, or the tuple's fields differ from the header.
        """
        self.opened()
        line = ",".join([self._cell(name, value) for name, value in zip(tup.fields, tup.values, strict=True)])
        if not line:
            raise cannot_hold(self, tup.fields[0], None, "and CSV cannot represent a line with a single empty field")
        data = _utf8(self, tup, line + "\r\n")
        if tup.fields == self._fields:
            return data
        if self._fields:
            raise ConnectError(
                f"CsvSink: a tuple of {tup.component!r} has the fields {', '.join(tup.fields)}, and the file's header "
                f"has {', '.join(self._fields)}: use a separate sink for each kind of tuple"
            )
        self._fields = tup.fields
        return (",".join(map(_quoted, tup.fields)) + "\r\n").encode() + data

    def _cell(self, name: str, value: Any) -> str:
        kind = type(value)
        if kind is str:
            return _quoted(value)
        if kind is int:
            return str(value)
        if kind is float:
            return repr(value)
        if value is None:
            return ""
        if kind is bool:
            return "true" if value else "false"
        raise cannot_hold(self, name, value, "and CSV holds str, int, float, bool and None")


def _quoted(value: str) -> str:
    if value and not any(sign in value for sign in ',"\r\n'):
        return value
    return '"' + value.replace('"', '""') + '"'


def _utf8(sink: object, tup: Tuple, line: str) -> bytes:
    try:
        return line.encode()
    except UnicodeEncodeError:
        named = ((n, v) for n, v in zip(tup.fields, tup.values, strict=True) if isinstance(v, str) and not _is_text(v))
        raise cannot_hold(sink, *next(named), "which UTF-8 cannot encode") from None


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)


def json_object(sink: object, fields: Sequence[str], values: Sequence[Any]) -> bytes:
    """Encode fields and values as a JSON object.

    Raises:
        ConnectError: A value would not be read back unchanged from JSON.
    """
    for name, value in zip(fields, values, strict=True):
        why = _why_not_json(value)
        if why:
            raise cannot_hold(sink, name, value, f"and {why}")
    return msgspec.json.encode(dict(zip(fields, values, strict=True)))


def _why_not_json(value: Any) -> str:
    """Return why JSON cannot represent a value exactly, or the empty string if it can.

    JSON can represent None, bool, 64-bit int, finite float, valid text, and lists and str-keyed dicts of these.
    """
    kind = type(value)
    if kind is str:
        return "" if _is_text(value) else "UTF-8 cannot encode it"
    if kind is int:
        return "" if -(2**63) <= value < 2**64 else "JSON readers support at most 64 bits"
    if kind is float:
        return "" if math.isfinite(value) else "JSON has finite numbers only"
    if value is None or kind is bool:
        return ""
    if isinstance(value, list | tuple):
        return next(filter(None, map(_why_not_json, value)), "")
    if isinstance(value, dict):
        if not all(type(key) is str for key in value):
            return "JSON's objects have str keys only"
        return next(filter(None, (_why_not_json(part) for pair in value.items() for part in pair)), "")
    return f"JSON has no {kind.__name__}"
