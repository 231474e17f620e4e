"""Writers of sinks, with two-phase commit.

Records are prepared under the token of a checkpoint, and become visible when that checkpoint is complete (staging.py).

A record that cannot be written is rejected when it is encoded, before anything of its block is emitted or taken, so
that only this record is put aside. File names sort by the start of the topology, checkpoint and task. Among running
results the last one read is therefore the newest, even if a key has moved to another task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from heron_runtime.files import append_whole
from heronry.api.state import Checkpoint
from heronry.connect.seats import Seat
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.lines import Lines
from heronry.streamlet.online.staging import StagingFolder


class TaskOf(NamedTuple):
    """Identity of the task that writes an output.

    Attributes:
        number: Index of the task, from 0.
        of: Number of tasks of the component.
        life: When the topology was started, in ms since 1970 UTC.
        folder: The topology's folder, for output without a path of its own.
        seat: Identity for servers. Its step is the name of the topology.
    """

    number: int
    of: int
    life: int
    folder: Path
    seat: Seat = Seat("", 0, "")

    def name(self, step: str, checkpoint: Checkpoint) -> str:
        """Return the name of a file of this checkpoint, without its suffix."""
        return f"{step}-{self.life:013d}-{checkpoint.number:09d}-{self.number}"


class Phased(Protocol):
    """Interface of a participant in two-phase commit.

    ``commit`` and ``abort`` may be called repeatedly, and with tokens of other tasks.
    """

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Persist the taken records under ``checkpoint.name``, still invisible to readers.

        Args:
            checkpoint: The checkpoint.
            final: True if all input has ended.

        Returns:
            False if there was nothing to prepare.
        """

    def commit(self, token: str) -> None:
        """Make the output of `token` visible."""

    def abort(self, token: str) -> None:
        """Discard the output of `token`."""

    def prepared(self) -> Iterable[str]:
        """Return the tokens that are prepared and not committed."""

    def close(self) -> None:
        """Discard everything that was not prepared."""


class Writer(Phased, Protocol):
    """Interface of the writer of one sink step in one task."""

    def encode(self, block: Block) -> Any:
        """Return these records in the form that ``take`` expects.

        Raises:
            StepFailed: A record cannot be written.
        """

    def take(self, encoded: Any) -> None:
        """Accept encoded records."""


class StagedWriter:
    """Base class of writers of files. A subclass implements ``_flush``.

    Attributes:
        marks_end: True if readers are told of the end of input.
    """

    marks_end: ClassVar[bool] = True

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        self._name = step
        self._task = task
        self.root = root
        self._staging = StagingFolder(root, step, task.number, task.of, task.life)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Prepare all files of this checkpoint.

        At the end of input this includes an empty file ``_final-STEP-TASK-of-N``.

        Raises:
            OSError: A file could not be written.
        """
        self._flush(self._task.name(self._name, checkpoint))
        if final and self.marks_end:
            self._staging.file(self._mark).touch()
        return self._staging.prepare(checkpoint.name)

    def commit(self, token: str, certain: bool = False) -> None:
        """Make the files of `token` visible to readers.

        Args:
            token: Token of the checkpoint.
            certain: True if files are known to have been prepared.

        Raises:
            OutputIsGone: Files are certain to have been prepared, and are lost.
        """
        self._staging.commit(token, certain)

    def abort(self, token: str) -> None:
        """Discard the files of `token`."""
        self._staging.abort(token)

    def prepared(self) -> list[str]:
        """Return the tokens that are prepared and not committed."""
        return self._staging.prepared()

    def _flush(self, name: str) -> None:
        raise NotImplementedError

    def has_lost_mark(self) -> bool:
        """Return True if the final mark of this task is not there, although it was prepared."""
        return self.marks_end and not (self.root / self._mark).exists()

    @property
    def _mark(self) -> str:
        return f"_final-{self._name}-{self._task.number}-of-{self._task.of}"

    def begin(self) -> None:
        """Remove outdated final marks, because the end is still to come.

        These are marks left by an earlier topology, or by one with another number of tasks.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        for left in (self.root / self._mark, *_marks_of_others(self.root, self._name, self._task.of)):
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Discard everything that was not prepared."""
        self._staging.close()


def _marks_of_others(folder: Path, step: str, of: int) -> list[Path]:
    """Return final marks of the step with another number of tasks, which would be taken for ours."""
    begin, end = f"_final-{step}-", f"-of-{of}"
    found = [mark for mark in folder.glob("_final-*-of-*") if mark.name.startswith(begin)]
    numbers = {mark: mark.name.removeprefix(begin).rpartition("-of-")[0] for mark in found}
    return [mark for mark, number in numbers.items() if number.isdecimal() and not mark.name.endswith(end)]


class LinesWriter(StagedWriter):
    """Writer of whole lines, as they arrive. Each file begins with ``head``."""

    suffix = ""
    head = b""

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        super().__init__(step, root, task)
        self._file: int | None = None
        self._path = Path()

    def take(self, data: bytes) -> None:
        """Write the lines.

        Raises:
            OSError: The write failed. Nothing was written then.
        """
        if self._file is None:
            self._path = self._staging.file("lines")
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            data = self.head + data
        append_whole(self._file, data)

    def _flush(self, name: str) -> None:
        if self._file is not None:
            self._let_go()
            os.rename(self._path, self._path.with_name(name + self.suffix))

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def close(self) -> None:
        """Close the file and discard everything that was not prepared."""
        self._let_go()
        super().close()


class TextWriter(LinesWriter):
    """Writer of records as lines of a text format."""

    def __init__(self, step: str, root: Path, task: TaskOf, lines: Lines) -> None:
        super().__init__(step, root, task)
        self._lines = lines
        self.suffix, self.head = lines.suffix, lines.head

    def encode(self, block: Block) -> bytes:
        """Return the records as lines.

        Raises:
            StepFailed: A record cannot be written.
        """
        return self._lines.encode(block.records)
