"""Batches that wait in a spool folder until another system has taken them.

What was prepared is a file of the folder (``spool.py``), so it outlives its task. Commit posts it, under a key that is
the same each time; a fault in between posts the same bytes with the same key again. So each batch takes effect once if
the other side can tell what it has by the key. A file that is left empty, ``….sent``, says that a batch is done.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heronry.connect.marks import TOKEN
from heronry.connect.seats import Seat
from heronry.connect.spool import SpoolSink

KEPT_CHECKPOINTS = 1000  # of those that are done, for each task


class PostingSink(SpoolSink):
    """Derive and write ``post``."""

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Raises BadConfig, ConnectError."""
        super().open(config, seat)
        self._forget_sent()

    def post(self, batch: Path, key: str) -> None:
        """Have the batch taken. Raises ConnectError, FileNotFoundError."""
        raise NotImplementedError(f"{type(self).__name__} has no post(self, batch, key)")

    def publish(self, hidden: Path, whole: Path) -> None:
        """Post it. Raises ConnectError, FileNotFoundError."""
        self.post(hidden, whole.stem)
        os.replace(hidden, whole)  # before it is emptied: what is hidden is always whole
        os.truncate(whole, 0)

    def _whole(self, token: str) -> Path:
        return self._folder / f"{self._step}-{token}.sent"

    def _forget_sent(self) -> None:
        """Remove what says that batches are done, when it is long ago."""
        sent: dict[str, list[tuple[int, str]]] = {}
        for token in filter(TOKEN.fullmatch, self.middles("", ".sent")):
            _, number, task, _ = token.split("-")
            sent.setdefault(task, []).append((int(number), token))
        for done in sent.values():
            newest = max(done)[0]
            for at, token in done:
                if at < newest - KEPT_CHECKPOINTS:
                    self._whole(token).unlink(missing_ok=True)


def safe_in(folder: Path) -> str:
    """What an error says of a batch that nobody took."""
    return f"The batch is safe in {folder} and is posted again once the topology goes on: see to the server"
