"""Spooled batches that are posted to another system.

A prepared batch is a file in the spool folder (``spool.py``), so it survives its task. Commit posts the batch with a
key that is the same for each attempt. After a fault, the same bytes are posted again with the same key. So each batch
takes effect once if the other system recognises keys. An empty file ``….sent`` records that a batch was posted.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from heronry.connect.marks import TOKEN
from heronry.connect.seats import Seat
from heronry.connect.spool import SpoolSink

KEPT_CHECKPOINTS = 1000  # checkpoints whose records of posted batches are kept, for each task


class PostingSink(SpoolSink):
    """Base class of sinks that post batches. Subclasses implement ``post``."""

    def open(self, config: dict[str, Any], seat: Seat) -> None:
        """Open the spool folder and remove old records of posted batches. Raises BadConfig, ConnectError."""
        super().open(config, seat)
        self._forget_sent()

    def post(self, batch: Path, key: str) -> None:
        """Post a batch.

        Args:
            batch: File of the batch.
            key: Idempotency key, the same for each attempt.

        Raises:
            ConnectError: The other system did not accept the batch.
            FileNotFoundError: Another process has committed the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} has no post(self, batch, key)")

    def publish(self, hidden: Path, whole: Path) -> None:
        """Post a batch and record that. Raises ConnectError, FileNotFoundError."""
        self.post(hidden, whole.stem)
        os.replace(hidden, whole)  # before truncation, so that a hidden file is always complete

        os.truncate(whole, 0)

    def _whole(self, token: str) -> Path:
        return self._folder / f"{self._step}-{token}.sent"

    def _forget_sent(self) -> None:
        """Remove the records of batches that were posted more than KEPT_CHECKPOINTS checkpoints ago."""
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
    """Return the sentence of an error message that says where a batch that was not posted is kept."""
    return f"The batch is safe in {folder} and is posted again once the topology continues: check the server"
