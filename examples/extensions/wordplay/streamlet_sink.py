"""A streamlet sink: records as JSON in a table of an SQLite database."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

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
    """Keeps what it takes until ``roll``. Acks wait for that: nothing is lost, and some records come twice."""

    def __init__(self, path: str, step: str) -> None:
        self.path, self.step = path, step
        self.rows: list[tuple[str, str]] = []
        self.size = 0  # about how many bytes wait for a roll
        with closing(sqlite3.connect(path, timeout=30)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS records (step TEXT, record TEXT)")

    def prepare(self, block: Block) -> list[str]:
        """Everything that can go wrong with a record goes wrong here: then only its tuple fails."""
        texts = []
        for record in block.records:
            try:
                texts.append(json.dumps(record))
            except (TypeError, ValueError) as error:
                raise StepFailed(self.step, record) from error
        return texts

    def take(self, prepared: list[str]) -> None:
        """Cannot fail."""
        self.rows += [(self.step, text) for text in prepared]
        self.size += sum(map(len, prepared))

    def roll(self) -> None:
        """One transaction."""
        with closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.executemany("INSERT INTO records VALUES (?, ?)", self.rows)
        self.rows, self.size = [], 0

    def finish(self) -> None:
        """Everything there will ever be is in place; nobody waits for a mark."""
