"""Files store whose tables another process creates during the first inspection."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from heron_runtime.state import files_database


def test_store_created_during_inspection_is_accepted(
    tmp_path: Path,
) -> None:
    """The inspection runs three queries; all tables appear between the first and the second."""
    path = tmp_path / "state.db"
    one, other = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    looks: list[int] = []

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(one, name)

        def execute(self, statement: str) -> Any:
            found = one.execute(statement)
            if statement == "PRAGMA user_version" and not looks:
                looks.append(1)
                version = found.fetchall()
                files_database._set_up(other, path)
                return SimpleNamespace(fetchone=lambda: version[0])
            return found

    files_database._set_up(Slow(), path)  # type: ignore[arg-type]
    assert looks
    assert files_database._schema_version(one, path) == files_database.SCHEMA_VERSION
    one.close()
    other.close()
