"""Files as sources and sinks: lines of a folder that grows, and one file for each checkpoint and task.

The source's splits are files; a position is the byte behind the last line that was emitted. A last line without an end
is not there yet. The sink writes into a hidden file, which ``prepare`` puts on disk under the checkpoint's name and
``commit`` renames to where readers look; so a reader sees whole files of complete checkpoints only.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from heronry.api.component import Spout
from heronry.api.state import Checkpoint, TwoPhaseSink
from heronry.api.tuples import Tuple

CHUNK_BYTES = 256 * 1024
LINES_A_CALL = 256
LIST_EACH_SECONDS = 0.5
_NAME = re.compile(r"\d+-\d+-\d+-[0-9a-f]+")


class FileLines(Spout):
    """Emits the lines of all files of a folder, and of those that come. ``config``: ``user.files.folder`` (read by all
    tasks alike), ``user.files.pattern`` (``*``). Fields: ``line`` (str; bytes that are no UTF-8 become U+FFFD)."""

    outputs = ("line",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises ValueError without a folder."""
        folder = config.get("user.files.folder")
        if not folder:
            raise ValueError("FileLines needs config 'user.files.folder': the folder whose files it reads")
        self._folder = Path(folder)
        self._pattern = config.get("user.files.pattern", "*")
        self._turn = 0
        self._owned: list[str] = []
        self._listed_at = float("-inf")

    def splits(self) -> list[str]:
        """The files there are now; hidden ones are not yet whole."""
        found = (path for path in self._folder.glob(self._pattern) if path.is_file())
        return sorted(path.name for path in found if not path.name.startswith("."))

    def next_tuple(self) -> None:
        """Some lines of the next file that has any."""
        if time.monotonic() - self._listed_at >= LIST_EACH_SECONDS:
            self._owned, self._listed_at = self.owned_splits(), time.monotonic()
        owned = self._owned
        for step in range(len(owned)):
            split = owned[(self._turn + step) % len(owned)]
            position = self.keyed.get(split, 0)
            lines, behind = lines_from(self._folder / split, position)
            if lines:
                self.emit_many([(line,) for line in lines])
                self.keyed[split] = behind
                self._turn += step + 1
                return


def lines_from(path: Path, position: int) -> tuple[list[str], int]:
    """Some whole lines that begin at this byte, and the byte behind them; a line longer than a chunk is read whole."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= position:
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


class JsonLinesSink(TwoPhaseSink):
    """Writes each tuple as a JSON object, one a line, into ``user.sink.folder`` of its ``config``: one file for each
    checkpoint and task, ``<name>.jsonl``, visible when the checkpoint is complete."""

    suffix = ".jsonl"

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Raises ValueError without a folder, OSError."""
        folder = config.get("user.sink.folder")
        if not folder:
            raise ValueError(f"{type(self).__name__} needs config 'user.sink.folder': the folder it writes into")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._step = f"{context.get_topology_name()}.{context.get_component_id()}"
        self._rows: list[bytes] = []

    def process(self, tup: Tuple) -> None:
        """Take it."""
        self._rows.append(self.encode(dict(zip(tup.fields, tup.values, strict=True))))

    def encode(self, record: dict[str, Any]) -> bytes:
        """One line, without its end. Raises TypeError for what JSON cannot hold."""
        return msgspec.json.encode(record)

    def prepare(self, checkpoint: Checkpoint) -> str | None:
        """The rows are on disk, under a hidden name."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, []
        path = self._hidden(checkpoint.name)
        with path.open("wb") as file:
            file.writelines(row + b"\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        return checkpoint.name

    def commit(self, checkpoint: int, token: str) -> None:
        """The file has its name; a second time changes nothing."""
        hidden, whole = self._hidden(token), self._folder / f"{self._step}-{token}{self.suffix}"
        if hidden.exists():
            os.replace(hidden, whole)
        elif not whole.exists():
            raise FileNotFoundError(f"{hidden} was prepared for checkpoint {checkpoint} and is gone, and so is {whole}")

    def abort(self, token: str) -> None:
        """It was never seen."""
        self._hidden(token).unlink(missing_ok=True)

    def prepared(self) -> list[str]:
        """The tokens of the hidden files of this component."""
        begin, end = f".{self._step}-", self.suffix
        names = (path.name for path in self._folder.iterdir())
        tokens = (name.removeprefix(begin).removesuffix(end) for name in names if name.startswith(begin))
        return [token for token in tokens if _NAME.fullmatch(token)]

    def _hidden(self, token: str) -> Path:
        return self._folder / f".{self._step}-{token}{self.suffix}"
