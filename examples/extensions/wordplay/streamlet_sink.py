"""A streamlet sink: records as JSON in a table of an SQLite database."""

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
    """``sink_of("sqlite", path="/data/records.db")``. ``path`` is absolute: tasks run in folders of their own."""

    path: str
    kind: str = "sqlite"

    def writer(self, step: str, task: str, folder: Path) -> SqliteWriter:
        """In each task of the step."""
        return SqliteWriter(self.path, step)


class SqliteWriter:
    """What is prepared stands in a table of its own; a commit moves it in one transaction, and finds nothing the second
    time. So each record is in ``records`` once."""

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
        """Everything that can go wrong with a record goes wrong here: then it alone is put aside."""
        texts = []
        for record in block.records:
            try:
                texts.append(json.dumps(record))
            except (TypeError, ValueError) as error:
                raise StepFailed(self.step, record) from error
        return texts

    def take(self, encoded: list[str]) -> None:
        """Until the next checkpoint."""
        self.texts += encoded

    def prepare(self, checkpoint: Checkpoint, final: bool) -> bool:
        """One transaction."""
        rows = [(checkpoint.name, self.step, text) for text in self.texts]
        self.texts = []
        if rows:
            with self._database() as database:
                database.executemany("INSERT INTO waiting VALUES (?, ?, ?)", rows)
        return bool(rows)

    def commit(self, token: str) -> None:
        """One transaction."""
        place = (token, self.step)
        with self._database() as database:
            database.execute("INSERT INTO records SELECT step, record FROM waiting WHERE token = ? AND step = ?", place)
            database.execute("DELETE FROM waiting WHERE token = ? AND step = ?", place)

    def abort(self, token: str) -> None:
        """It was never there."""
        with self._database() as database:
            database.execute("DELETE FROM waiting WHERE token = ? AND step = ?", (token, self.step))

    def prepared(self) -> list[str]:
        """The tokens that wait."""
        with self._database() as database:
            return [
                token
                for (token,) in database.execute("SELECT DISTINCT token FROM waiting WHERE step = ?", (self.step,))
            ]

    def close(self) -> None:
        """Nothing is open."""
