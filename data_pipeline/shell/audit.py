"""Import of the API server's audit log into the history; ``core/audit.py`` selects the lines.

Files are opened the newest first. A file that is rotated meanwhile is then found again under its next name, and
recognized by its inode. A day is one file, replaced by one rename and readable only by its owner.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipeline.core.audit import by_day, merged, read_line
from heron_runtime.failures import NotFound
from heron_runtime.files import replace_file
from heron_runtime.model.history import AUDIT_FOLDER, EVENT_COLUMNS, SUFFIX, TOPOLOGY, day_folder

NAME = f"audit{SUFFIX}"
MOST_FILES = 100


def take(root: Path, record: Path) -> tuple[int, int]:
    """Add the lines of the log (``audit.jsonl``) to the history below ``root``.

    Returns:
        The number of new lines, and the number of invalid lines.

    Raises:
        NotFound: The log is missing.
        OSError: A file cannot be read or written.
    """
    days, strange = by_day(_lines(record))
    new = 0
    for date, counts in sorted(days.items()):
        path = root / AUDIT_FOLDER / day_folder(date) / NAME
        there = bag(path)
        whole = merged(there, counts)
        if whole != there:
            _write(path, whole)
            new += whole.total() - there.total()
    return new, strange


def bag(path: Path) -> Counter[str]:
    """Return the multiset of lines of a day's file; empty if the file is missing."""
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            return Counter(pq.ParquetFile(file).read(columns=["detail"])["detail"].to_pylist())
    except FileNotFoundError:
        return Counter()


def _lines(record: Path) -> Iterator[str]:
    names = [record, *(record.with_name(f"{record.name}.{number}") for number in range(1, MOST_FILES))]
    if not any(name.exists() for name in names):
        raise NotFound(f"{record}: no such file", "Name the audit.jsonl of the api server's --home.")
    seen: set[tuple[int, int]] = set()
    for name in names:
        try:
            file = name.open("rb")
        except FileNotFoundError:
            continue
        with file:
            stat = os.fstat(file.fileno())
            if (stat.st_dev, stat.st_ino) in seen:
                continue
            seen.add((stat.st_dev, stat.st_ino))
            for line in file:
                if line.endswith(b"\n"):  # an incomplete line is still being written
                    yield line.decode(errors="replace").rstrip("\n")


def _write(path: Path, lines: Counter[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted((w for line in lines.elements() if (w := read_line(line)) is not None), key=lambda w: w.event.time_ms)
    whole = {"time_ms": pa.int64(), "container": pa.int32(), "count": pa.int64()}
    columns: dict[str, Any] = {
        name: pa.array([getattr(w.event, name) for w in rows], whole.get(name, pa.string())) for name in EVENT_COLUMNS
    }
    columns[TOPOLOGY] = pa.array([w.topology for w in rows], pa.string())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, sink.getvalue().to_pybytes(), 0o600)
