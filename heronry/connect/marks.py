"""Which output was committed, as names in the folder it was committed to: ``.STEP-done-LIFE-TOKEN``, one a task.

A task's tokens are committed in order of checkpoints, so its last mark speaks for all before it: within one life of the
topology, for a namesake counts checkpoints from 1. So a commit that comes again and finds nothing that waits can tell
output that readers have taken away since from output that is lost, or lies on another host.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from heron_runtime.failures import Failure
from heron_runtime.files import entries

TOKEN = re.compile(r"\d+-\d+-\d+-[0-9a-f]+")  # generation, checkpoint, task, who wrote it
MARK = re.compile(r"done-([^-]+)-(\d+-(\d+)-(\d+)-[0-9a-f]+)")  # life, token: its checkpoint and task


def life_of(topology_id: str) -> str:
    """A short name for the life of a topology, safe as a part of a file name."""
    return hashlib.blake2b(topology_id.encode(), digest_size=6).hexdigest()


class OutputIsGone(Failure):
    """What was prepared for a complete checkpoint is not where it is to be committed."""


class Marks:
    """In ``folder``, of a step, in one ``life`` of its topology (without ``-``). Everything raises OSError."""

    def __init__(self, folder: Path, step: str, life: str) -> None:
        self._folder = folder
        self._begin = f".{step}-"
        self._life = life

    def middles(self) -> Iterator[str]:
        """What stands behind the step in hidden names."""
        for path in entries(self._folder):
            if path.name.startswith(self._begin):
                yield path.name.removeprefix(self._begin)

    def path(self, token: str) -> Path:
        """The mark of a token."""
        return self.hidden(f"done-{self._life}-{token}")

    def hidden(self, middle: str) -> Path:
        """The hidden name with this behind the step."""
        return self._folder / f"{self._begin}{middle}"

    def last(self, middles: Iterable[str]) -> dict[int, tuple[int, str]]:
        """The last checkpoint of which each task's output was committed, in this life, and the middle of its mark."""
        last: dict[int, tuple[int, str]] = {}
        for mark in filter(None, map(MARK.fullmatch, middles)):
            number, task = int(mark[3]), int(mark[4])
            if mark[1] == self._life and number > last.get(task, (-1, ""))[0]:
                last[task] = number, mark[0]
        return last

    def has(self, token: str) -> bool:
        """True if it was committed: it has a mark, in whatever life, or a later one of its task has, in this one."""
        _, number, task, _ = token.split("-")
        middles = list(self.middles())
        if any(mark[2] == token for mark in filter(None, map(MARK.fullmatch, middles))):
            return True
        return self.last(middles).get(int(task), (-1, ""))[0] >= int(number)

    def leave(self, token: str) -> None:
        """An empty file, in place of the task's mark before."""
        _, _, task, _ = token.split("-")
        mark = self.path(token)
        before = [m[0] for m in filter(None, map(MARK.fullmatch, self.middles())) if m[4] == task]
        if mark.name.removeprefix(self._begin) in before:
            return
        mark.touch()
        for middle in before:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.hidden(middle))
