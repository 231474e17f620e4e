"""Writers of sinks, in two phases: what is taken is prepared under the token of a checkpoint, and seen once that is
complete (staging.py).

A record that cannot be written is refused when it is encoded, before anything of its block is emitted or taken, so that
it alone is put aside. Names of files sort by the start of the topology, checkpoint and task, so of running results the
last one read is the newest, also when a key has moved to another task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from heron_runtime.files import append_whole
from heronry.api.state import Checkpoint
from heronry.connect.seats import Seat
from heronry.streamlet.online.block import Block
from heronry.streamlet.online.lines import Lines
from heronry.streamlet.online.staging import StagingFolder


class TaskOf(NamedTuple):
    """Whose output it is: task ``number`` of ``of``, counted from 0, of a topology begun at ``life`` (ms since 1970
    UTC). ``folder`` is the topology's, for what has no place of its own. ``seat``: for servers, its step the name of
    the topology."""

    number: int
    of: int
    life: int
    folder: Path
    seat: Seat = Seat("", 0, "")

    def name(self, step: str, checkpoint: Checkpoint) -> str:
        """Of a file of this checkpoint, without its suffix."""
        return f"{step}-{self.life:013d}-{checkpoint.number:09d}-{self.number}"


class Phased(Protocol):
    """What is shown with checkpoints. ``commit`` and ``abort`` may come again, and for tokens of other tasks."""

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Make what was taken safe and invisible, under ``checkpoint.name``; ``final``: nothing more will come. False
        if there is nothing."""

    def commit(self, token: str) -> None:
        """Make it visible."""

    def abort(self, token: str) -> None:
        """Throw it away."""

    def prepared(self) -> Iterable[str]:
        """Tokens that wait."""

    def close(self) -> None:
        """Let go of what was not prepared."""


class Writer(Phased, Protocol):
    """One sink step in one task."""

    def encode(self, block: Block) -> Any:
        """What ``take`` wants of these records. Raises StepFailed for one that cannot be written."""

    def take(self, encoded: Any) -> None:
        """Take what was encoded."""


class StagedWriter:
    """What writers of files share. Derive and write ``_flush``."""

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        self._name = step
        self._task = task
        self.root = root
        self._staging = StagingFolder(root, step, task.number, task.of, task.life)

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """All files of this checkpoint; ``_final-STEP-TASK-of-N``, an empty one, at the end. Raises OSError."""
        self._flush(self._task.name(self._name, checkpoint))
        if final:
            self._finish()
        return self._staging.prepare(checkpoint.name)

    def commit(self, token: str, certain: bool = False) -> None:
        """Readers see them. ``certain``: some were prepared; raises OutputIsGone if they are lost."""
        self._staging.commit(token, certain)

    def abort(self, token: str) -> None:
        """They never will."""
        self._staging.abort(token)

    def prepared(self) -> list[str]:
        """Tokens that wait."""
        return self._staging.prepared()

    def _flush(self, name: str) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        self._staging.file(self._mark).touch()

    @property
    def _mark(self) -> str:
        return f"_final-{self._name}-{self._task.number}-of-{self._task.of}"

    def begin(self) -> None:
        """The end has not come: marks say so that an earlier topology has left, or one of another number of tasks."""
        self.root.mkdir(parents=True, exist_ok=True)
        for left in (self.root / self._mark, *_marks_of_others(self.root, self._name, self._task.of)):
            left.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of what was not prepared."""
        self._staging.close()


def _marks_of_others(folder: Path, step: str, of: int) -> list[Path]:
    """Final marks of tasks of another number: they would count as ours."""
    begin, end = f"_final-{step}-", f"-of-{of}"
    found = [mark for mark in folder.glob("_final-*-of-*") if mark.name.startswith(begin)]
    numbers = {mark: mark.name.removeprefix(begin).rpartition("-of-")[0] for mark in found}
    return [mark for mark, number in numbers.items() if number.isdecimal() and not mark.name.endswith(end)]


class LinesWriter(StagedWriter):
    """Whole lines, as they come. ``head``: what each file begins with."""

    suffix = ""
    head = b""

    def __init__(self, step: str, root: Path, task: TaskOf) -> None:
        super().__init__(step, root, task)
        self._file: int | None = None
        self._path = Path()

    def take(self, data: bytes) -> None:
        """Write them. Raises OSError, and has written nothing then."""
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
        """Let go of what was not prepared."""
        self._let_go()
        super().close()


class TextWriter(LinesWriter):
    """Records as lines of a format."""

    def __init__(self, step: str, root: Path, task: TaskOf, lines: Lines) -> None:
        super().__init__(step, root, task)
        self._lines = lines
        self.suffix, self.head = lines.suffix, lines.head

    def encode(self, block: Block) -> bytes:
        """Lines. Raises StepFailed."""
        return self._lines.encode(block.records)
