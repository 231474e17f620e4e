"""Text files: lines of a folder that grows as a source; JSON lines and CSV, a file for each checkpoint, as sinks.

The source's splits are files; a position is the byte behind the last line that was emitted. A last line without an end
is not there yet. Files only grow: one that is shorter than its position was truncated or replaced, and what was read of
it cannot be taken back, so that is an error. How sinks write is ``spool.py``'s.
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
from heronry.connect.settings import ConnectError, Option, problems, require, text
from heronry.connect.spool import SpoolSink, cannot_hold
from heronry.connect.tracked import FOLDER as POSITIONS
from heronry.connect.tracked import TrackedSource

CHUNK_BYTES = 256 * 1024
LINES_A_CALL = 256
LIST_EACH_SECONDS = 0.5
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
FOLDER = text("user.files.folder", "the folder whose files it reads", required=True)
PATTERN = Option(
    "user.files.pattern",
    "which of its files, as in a shell",
    "a pattern of paths below the folder, like *.log, */*.log or **/*.log",
    lambda value: isinstance(value, str) and not PurePath(value).is_absolute() and ".." not in PurePath(value).parts,
    "*",
)


class FileLines(TrackedSource):
    """Emits the lines of all files of a folder, and of those that come. ``config``: ``user.files.folder`` (read by all
    tasks alike), ``user.files.pattern`` (``*``; ``*/*.log`` reads folders in it). Fields: ``line`` (str; bytes that are
    no UTF-8 become U+FFFD)."""

    outputs = ("line",)

    @classmethod
    def config_problems(cls, config: Mapping[str, Any]) -> Iterator[str]:
        """What is missing or wrong."""
        yield from problems((FOLDER, PATTERN, POSITIONS), config)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises BadConfig, ConnectError."""
        require(self, config)
        self._folder = Path(FOLDER.of(config))
        self._pattern = PATTERN.of(config)
        self._turn = 0
        self._owned: list[str] = []
        self._listed_at = float("-inf")
        self.begin_tracking(config, context)
        self.splits()

    def splits(self) -> list[str]:
        """The files there are now; hidden ones are not yet whole. Raises ConnectError."""
        if not self._folder.is_dir():
            raise ConnectError(
                f"FileLines reads {self._folder}, which is no folder here: make it on every host of the topology, or "
                f"name another in config {FOLDER.key!r} (as an absolute path: tasks run in a folder of their own)"
            )
        found = (path.relative_to(self._folder) for path in self._folder.glob(self._pattern) if path.is_file())
        names = sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))
        packed = next((name for name in names if name.lower().endswith(PACKED)), None)
        if packed is not None:
            raise ConnectError(
                f"{self._folder / packed} is compressed, and FileLines reads lines at byte positions: unpack it, or "
                f"leave it out by config {PATTERN.key!r}"
            )
        return names

    def next_tuple(self) -> None:
        """Some lines of the next file that has any."""
        self.settle()
        if not self.has_room():
            return
        if time.monotonic() - self._listed_at >= LIST_EACH_SECONDS:
            self._owned, self._listed_at = self.owned_splits(), time.monotonic()
        owned = self._owned
        for step in range(len(owned)):
            split = owned[(self._turn + step) % len(owned)]
            position = self.position_of(split, 0)
            lines, behind = lines_from(self._folder / split, position)
            if lines:
                self.emit_page(split, [(line,) for line in lines], behind)
                self._turn += step + 1
                return


def lines_from(path: Path, position: int) -> tuple[list[str], int]:
    """Some whole lines that begin at this byte, and the byte behind them; a line longer than a chunk is read whole.
    Raises ConnectError for a file that has become shorter, or cannot be read."""
    try:
        return _lines_from(path, position)
    except FileNotFoundError:
        return [], position  # files may be taken away; it will no longer be listed
    except OSError as error:
        raise ConnectError(
            f"{path} cannot be read ({error.strerror}): make it readable for the user that the topology's code runs as"
        ) from error


def _lines_from(path: Path, position: int) -> tuple[list[str], int]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < position:
            raise ConnectError(
                f"{path} has {size} bytes, and {position} of it have been read: it was truncated or replaced. Files "
                "may only grow; put the old one back and give the new one a name of its own"
            )
        if size == position:
            return [], position
        file.seek(position)
        data = file.read(CHUNK_BYTES)
        while b"\n" not in data:
            more = file.read(CHUNK_BYTES)
            if not more:
                return [], position
            data += more
    ends = list(itertools.islice(_ends(data), LINES_A_CALL))
    whole = data[: ends[-1]]
    lines = whole.decode("utf-8", "replace").split("\n")[:-1]
    return [line.removesuffix("\r") for line in lines], position + len(whole)


def _ends(data: bytes) -> Iterator[int]:
    at = data.find(b"\n")
    while at >= 0:
        yield at + 1
        at = data.find(b"\n", at + 1)


class JsonLinesSink(SpoolSink):
    """Writes each tuple as a JSON object, one a line, into ``user.sink.folder`` of its ``config``: one file for each
    checkpoint and task, ``<name>.jsonl``, visible when the checkpoint is complete."""

    suffix = ".jsonl"

    def encode(self, tup: Tuple) -> bytes:
        """One line."""
        return json_object(self, tup.fields, tup.values) + b"\n"


class CsvSink(SpoolSink):
    """Writes tuples as lines of CSV (RFC 4180, UTF-8, a header in each file) into ``user.sink.folder``, as
    ``JsonLinesSink`` does. None is an empty field, the empty string is ``""``; true, false; floats as ``repr``."""

    suffix = ".csv"
    _fields: tuple[str, ...] = ()  # of the file that is written

    def begin(self, file: BinaryIO) -> None:
        """The header comes with the first tuple."""
        self._fields = ()

    def encode(self, tup: Tuple) -> bytes:
        """One line, and the header before the first."""
        self.opened()
        line = ",".join([self._cell(name, value) for name, value in zip(tup.fields, tup.values, strict=True)])
        if not line:
            raise cannot_hold(self, tup.fields[0], None, "and a line of CSV with one empty field is no line")
        data = _utf8(self, tup, line + "\r\n")
        if tup.fields == self._fields:
            return data
        if self._fields:
            raise ConnectError(
                f"CsvSink: a tuple of {tup.component!r} has the fields {', '.join(tup.fields)}, and the file's header "
                f"has {', '.join(self._fields)}: give each kind of tuple a sink of its own"
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
        raise cannot_hold(sink, *next(named), "and it is no text that UTF-8 can hold") from None


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in value)


def json_object(sink: object, fields: Sequence[str], values: Sequence[Any]) -> bytes:
    """Fields as a JSON object. Raises ConnectError for what JSON would not give back as it was."""
    for name, value in zip(fields, values, strict=True):
        why = _why_not_json(value)
        if why:
            raise cannot_hold(sink, name, value, f"and {why}")
    return msgspec.json.encode(dict(zip(fields, values, strict=True)))


def _why_not_json(value: Any) -> str:
    """Empty for None, bool, int of 64 bits, finite float, text, and lists and dicts by text of these."""
    kind = type(value)
    if kind is str:
        return "" if _is_text(value) else "it is no text that UTF-8 can hold"
    if kind is int:
        return "" if -(2**63) <= value < 2**64 else "readers of JSON keep no more than 64 bits"
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
