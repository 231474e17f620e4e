"""Power failures: checkpoint files and the state store may lose unsynced data or be torn.

Synced data must be present, and damaged data must be rejected rather than misread. The simulated disk follows the
guarantees of Linux: the content of a file is safe after fsync of the file, and its name after fsync of its folder.
Everything else may be lost in any part.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_instance.core.state.snapshot import DamagedPart, KeyGroupRows, TaskSnapshot, read_part
from heron_instance.core.values_codec import ValuesCodec
from heron_runtime import files
from heron_runtime.checkpoint_files import CheckpointFolder
from heron_runtime.model.checkpoints import ALL_GROUPS, StatePart
from heron_runtime.state.files_database import Database

DRAFT = StatePart("count", 3, 1 << 60, 2, 7, 4, 0, "", ALL_GROUPS)


class Disk:
    """Recorder of synced file sizes and folder entries. ``lose`` simulates a power failure."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._sizes: dict[int, int] = {}  # inode to bytes on disk
        self._names: dict[Path, dict[str, int]] = {}  # folder to its names on disk
        patch.setattr(files.os, "fsync", self._synced)

    def lose(self, folder: Path, keep: Callable[[int], int]) -> None:
        """Revert to the synced state; of an unsynced file ``keep(size)`` bytes remain."""
        names = self._names.get(folder, {})
        for path in list(folder.iterdir()):
            if names.get(path.name) != path.stat().st_ino:
                path.unlink()
                continue
            size = self._sizes.get(path.stat().st_ino)
            if size is None:
                os.truncate(path, keep(path.stat().st_size))

    def _synced(self, descriptor: int) -> None:
        status, path = os.fstat(descriptor), Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._sizes[status.st_ino] = status.st_size


def part_of(values: list[int]) -> tuple[StatePart, list[bytes]]:
    rows = [(f"key {n}", value) for n, value in enumerate(values)]
    return TaskSnapshot(DRAFT, [], [KeyGroupRows(5, True, rows)], ValuesCodec()).encode()


def read_back(folder: CheckpointFolder, part: StatePart) -> list[KeyGroupRows]:
    with folder.open_part(part.name) as read:
        return list(read_part(part, read, ALL_GROUPS, ValuesCodec()))


def test_written_part_survives_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, folder = Disk(monkeypatch), CheckpointFolder(tmp_path.resolve())
    part, pieces = part_of([1, 2, 3])
    folder.write_part(part.name, pieces)
    disk.lose(tmp_path.resolve() / "parts", lambda size: size // 2)
    assert [group.rows for group in read_back(folder, part)] == [[("key 0", 1), ("key 1", 2), ("key 2", 3)]]


@given(st.lists(st.integers(), min_size=1, max_size=30), st.data())
def test_torn_or_changed_part_is_rejected(values: list[int], data: st.DataObject) -> None:
    part, pieces = part_of(values)
    whole = b"".join(pieces)
    at = data.draw(st.integers(0, len(whole) - 1))
    torn = data.draw(st.booleans())
    damaged = (
        whole[:at] if torn else whole[:at] + bytes([whole[at] ^ 1 << data.draw(st.integers(0, 7))]) + whole[at + 1 :]
    )
    with pytest.raises(DamagedPart):
        list(read_part(part, lambda offset, size: damaged[offset : offset + size], ALL_GROUPS, ValuesCodec()))


def opened(path: Path) -> Database:
    """Open a new or existing store."""
    path.touch()  # SQLite is configured not to create files
    database = Database(path, 5.0)
    database.open()
    return database


def write_pair(database: Database, number: int) -> None:
    """Write two rows in one transaction."""
    with database.write() as connection:
        for name in ("a", "b"):
            connection.execute(
                "INSERT OR REPLACE INTO nodes VALUES (?, '/', ?, ?, NULL, 0)", (f"/{name}", b"x" * 3000, number)
            )


def versions(path: Path) -> list[int]:
    """Open the store and return the versions of both rows."""
    database = opened(path)
    try:
        with database.read() as connection:
            return [row[0] for row in connection.execute("SELECT version FROM nodes WHERE parent = '/' ORDER BY path")]
    finally:
        database.close()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Return a copy of a store after a power failure, and the size of its journal after each transaction."""
    folder, copy = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("copy")
    database, sizes = opened(folder / "state.db"), []
    for number in range(1, 7):
        write_pair(database, number)
        sizes.append((folder / "state.db-wal").stat().st_size)
    for name in ("state.db", "state.db-wal"):
        shutil.copy(folder / name, copy / name)
    database.close()
    return copy, sizes


@given(share=st.floats(0, 1), garbled=st.booleans())
def test_torn_journal_yields_exactly_its_complete_transactions(
    journal: tuple[Path, list[int]], tmp_path_factory: pytest.TempPathFactory, share: float, garbled: bool
) -> None:
    """Only a part of the write-ahead log is on disk, possibly with a wrong last byte."""
    source, sizes = journal
    folder = tmp_path_factory.mktemp("torn")
    log = (source / "state.db-wal").read_bytes()
    kept = bytearray(log[: round(share * len(log))])
    safe = sum(size <= len(kept) - garbled for size in sizes)  # number of complete transactions in it
    if garbled and kept:
        kept[-1] ^= 0x10
    shutil.copy(source / "state.db", folder / "state.db")
    (folder / "state.db-wal").write_bytes(kept)
    found = versions(folder / "state.db")
    assert found in ([], [safe, safe])
    assert found or not safe


def test_store_syncs_each_transaction(tmp_path: Path) -> None:
    database = opened(tmp_path / "state.db")
    with database.read() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL: a commit is on disk when it returns"
    database.close()
