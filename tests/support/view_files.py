"""Views as batch jobs and online reducers write them, and a plain reader of a whole view."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from heronry.pipeline.rows import Row, read_online, row_of, schema
from heronry.pipeline.views import Description, describe_view, next_version
from heronry.streamlet.monoid import Monoid
from heronry.streamlet.records import pack

BUCKET = 10
Event = tuple[str, int, int]  # key, time, value


def bucket_of(time: int) -> int:
    return time - time % BUCKET


def grouped(events: Iterable[Event], monoid: Monoid) -> dict[tuple[str, int], Any]:
    """Return accumulators by (key, bucket)."""
    values: dict[tuple[str, int], list[int]] = {}
    for key, time, value in events:
        values.setdefault((key, bucket_of(time)), []).append(value)
    return {place: monoid.folded(these) for place, these in values.items()}


def write_batch(
    folder: Path,
    events: Iterable[Event],
    monoid: Monoid,
    to_ms: int,
    parameters: Any = (),
    files: int = 1,
    group: int = 1000,
) -> None:
    """Write what a batch up to ``to_ms`` publishes, from events in any order."""
    describe_view(folder, Description("v", "p", "s", BUCKET, monoid.builtin, parameters or monoid.parameters))
    place = next_version(folder)
    work = place.with_name(f".{place.name}")
    before = grouped([event for event in events if event[1] < to_ms], monoid)
    rows = [
        row_of(key, start, start + BUCKET, acc, monoid)
        for (key, start), acc in before.items()
        if start + BUCKET <= to_ms
    ]
    for number in range(files):
        write_rows(work / "rows" / f"part-{number}.parquet", rows[number::files], group)
    (work / "_heronry.json").write_text(json.dumps({"to_ms": to_ms}))
    work.rename(place)


def write_online(folder: Path, events: Iterable[Event], monoid: Monoid, tasks: int = 2) -> None:
    """Write the files of online reducers: one for each bucket and task, with a key always in the same task."""
    files: dict[tuple[int, int], list[Any]] = {}
    for (key, start), acc in grouped(events, monoid).items():
        files.setdefault((start, len(key) % tasks), []).append([key, start, monoid.pack(acc)])
    for (start, task), rows in files.items():
        file = folder / "online" / str(start) / f"{task}.msgpack"
        file.parent.mkdir(parents=True, exist_ok=True)
        head = {"view": "v", "monoid": monoid.builtin, "parameters": dict(monoid.parameters)}
        body = {**head, "bucket_ms": BUCKET, "length_ms": None, "written_ms": 1, "rows": rows}
        file.write_bytes(msgspec.msgpack.encode(body))


def write_rows(file: Path, rows: Iterable[Row], group: int = 1000) -> None:
    """Write a file of rows, with ``group`` rows per row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = [(*row[:3], pack(row.packed)) for row in rows]
    columns = list(zip(*packed, strict=True)) or [(), (), (), ()]
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table([list(column) for column in columns], schema=schema())
    pq.write_table(table, file, compression="zstd", row_group_size=group)


def read_at_once(folder: Path, monoid: Monoid) -> dict[tuple[bytes, int], Any]:
    """Return accumulators by (canonical key, start) of a view with a batch, read completely."""
    import pyarrow.parquet as pq

    newest = max((folder / "batch").iterdir())
    to_ms = json.loads((newest / "_heronry.json").read_bytes())["to_ms"]
    rows = [
        (row["key"], row["start"], msgspec.msgpack.decode(row["acc"]))
        for file in newest.rglob("*.parquet")
        for row in pq.read_table(file).to_pylist()
    ]
    for file in folder.glob("online/*/*.msgpack"):
        rows += [(row.key, row.start, row.packed) for row in read_online(file).rows if row.end > to_ms]
    found: dict[tuple[bytes, int], Any] = {}
    for key, start, packed in rows:
        acc = monoid.unpack(packed)
        found[key, start] = monoid.add(found[key, start], acc) if (key, start) in found else acc
    return found
