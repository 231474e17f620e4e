"""Marks of committed output: empty files ``.STEP-done-LIFE-TOKEN`` in the output folder, one for each task.

A task's tokens are committed in the order of checkpoints, so its last mark also covers all earlier ones. This holds
within one life of the topology, because a later topology of the same name counts checkpoints from 1 again. If a commit
is repeated and finds no prepared file, the mark distinguishes output that readers have removed since from output that
is lost or on another host.
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

TOKEN = re.compile(r"\d+-\d+-\d+-[0-9a-f]+")  # generation, checkpoint, task, id of the writer
MARK = re.compile(r"done-([^-]+)-(\d+-(\d+)-(\d+)-[0-9a-f]+)")  # life, token, the token's checkpoint and task


def life_of(topology_id: str) -> str:
    """Return a short name for the life of a topology, safe as part of a file name."""
    return hashlib.blake2b(topology_id.encode(), digest_size=6).hexdigest()


class OutputIsGone(Failure):
    """Error of missing output that was prepared for a complete checkpoint."""


class Marks:
    """Marks of a step in one life of its topology. All methods raise OSError.

    Args:
        folder: Folder of the output.
        step: Name of the step.
        life: Name of the life, without ``-``.
    """

    def __init__(self, folder: Path, step: str, life: str) -> None:
        self._folder = folder
        self._begin = f".{step}-"
        self._life = life

    def middles(self) -> Iterator[str]:
        """Yield the parts after the step in the hidden file names."""
        for path in entries(self._folder):
            if path.name.startswith(self._begin):
                yield path.name.removeprefix(self._begin)

    def path(self, token: str) -> Path:
        """Return the path of a token's mark."""
        return self.hidden(f"done-{self._life}-{token}")

    def hidden(self, middle: str) -> Path:
        """Return the path of the hidden file with this part after the step."""
        return self._folder / f"{self._begin}{middle}"

    def last(self, middles: Iterable[str]) -> dict[int, tuple[int, str]]:
        """Return each task's last committed checkpoint in this life, and the middle of its mark's name."""
        last: dict[int, tuple[int, str]] = {}
        for mark in filter(None, map(MARK.fullmatch, middles)):
            number, task = int(mark[3]), int(mark[4])
            if mark[1] == self._life and number > last.get(task, (-1, ""))[0]:
                last[task] = number, mark[0]
        return last

    def has(self, token: str) -> bool:
        """Return True if the token was committed.

        It was if it has a mark in any life, or if its task has a later mark in this life.
        """
        _, number, task, _ = token.split("-")
        middles = list(self.middles())
        if any(mark[2] == token for mark in filter(None, map(MARK.fullmatch, middles))):
            return True
        return self.last(middles).get(int(task), (-1, ""))[0] >= int(number)

    def leave(self, token: str) -> None:
        """Write the mark of a token, and remove the task's earlier ones."""
        _, _, task, _ = token.split("-")
        mark = self.path(token)
        before = [m[0] for m in filter(None, map(MARK.fullmatch, self.middles())) if m[4] == task]
        if mark.name.removeprefix(self._begin) in before:
            return
        mark.touch()
        for middle in before:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.hidden(middle))
