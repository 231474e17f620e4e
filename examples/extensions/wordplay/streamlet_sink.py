"""Streamlet sink that writes records as JSON into a table of an SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from heronry.api.state import Checkpoint
from heronry.streamlet.errors import StepFailed
from heronry.streamlet.online.block import Block


@dataclass(frozen=True, slots=True)
class SqliteSink:
    """Sink of ``sink_of("sqlite", path="/data/records.db")``. The path must be absolute."""

    path: str
    kind: str = "sqlite"

    def writer(self, step: str, task: str, folder: Path) -> SqliteWriter:
        """Create the writer of a task."""
        return SqliteWriter(self.path, step)


class SqliteWriter:
    """Writer with a table of prepared records.

    A commit moves them in one transaction, and a repeated commit finds none. So each record is in ``records`` once.
    """

    def __init__(self, path: str, step: str) -> None:
        self.path, self.step = path, step
        self.texts: list[str] = []
        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS records (step TEXT, record TEXT)")
            database.execute("CREATE TABLE IF NOT EXISTS waiting (token TEXT, step TEXT, record TEXT)")

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            yield database

    def encode(self, block: Block) -> list[str]:
        """Encode records. A record that raises here is put aside alone."""
        texts = []
        for record in block.records:
            try:
                texts.append(json.dumps(record))
            except (TypeError, ValueError) as error:
                raise StepFailed(self.step, record) from error
        return texts

    def take(self, encoded: list[str]) -> None:
        """Keep records until the next checkpoint."""
        self.texts += encoded

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """Store the records under the checkpoint in one transaction. Return whether there are any."""
        rows = [(checkpoint.name, self.step, text) for text in self.texts]
        self.texts = []
        if rows:
            with self._database() as database:
                database.executemany("INSERT INTO waiting VALUES (?, ?, ?)", rows)
        return bool(rows)

    def commit(self, token: str) -> None:
        """Move the records of a token to ``records`` in one transaction."""
        place = (token, self.step)
        with self._database() as database:
            database.execute("INSERT INTO records SELECT step, record FROM waiting WHERE token = ? AND step = ?", place)
            database.execute("DELETE FROM waiting WHERE token = ? AND step = ?", place)

    def abort(self, token: str) -> None:
        """Delete the records of a token."""
        with self._database() as database:
            database.execute("DELETE FROM waiting WHERE token = ? AND step = ?", (token, self.step))

    def prepared(self) -> list[str]:
        """Return the tokens of prepared records."""
        with self._database() as database:
            return [
                token
                for (token,) in database.execute("SELECT DISTINCT token FROM waiting WHERE step = ?", (self.step,))
            ]

    def close(self) -> None:
        """Do nothing, since no connection is open."""
