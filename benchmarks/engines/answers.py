"""Digest of a result, independent of the engine: the number of rows, and a hash of them."""

from __future__ import annotations

from pathlib import Path

#:  Program to its rows, as SQL over the columns below. Heronry has whole records on both sides of a join.
ROWS = {
    "words": "key, value",
    "windows": "key, start, value",
    "join": "key, coalesce(clicked, (\"left\"->'$.time')::bigint), coalesce(bought, (\"right\"->'$.time')::bigint)",
    "sessions": "key, start, value",
    "topk": "key, value",
}
TYPES = {"key": "varchar", "start": "bigint", "left": "json", "right": "json", "clicked": "bigint", "bought": "bigint"}
TYPES_OF_VALUES = {"topk": "bigint[]"}


class Differs(Exception):
    """Different results of one program."""


def answer(case: str, place: Path) -> tuple[int, int]:
    """Return the number of rows and their digest, of a file of JSON lines or a folder. Raises FileNotFoundError."""
    import duckdb

    files = [place] if place.is_file() else [f for f in place.rglob("*.json") if not f.name.startswith((".", "_"))]
    files += [] if place.is_file() else [f for f in place.rglob("part-*") if f.suffix in ("", ".txt")]
    read = [str(file) for file in files if file.stat().st_size]
    if not read:
        raise FileNotFoundError(f"no results in {place}")
    types = TYPES | {"value": TYPES_OF_VALUES.get(case, "bigint")}
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
    read_json = f"read_json(?, format='newline_delimited', columns={{{columns}}})"
    said = f"select count(*), sum(hash(concat_ws('|', {ROWS[case]}))) from {read_json}"
    found = duckdb.execute(said, [read]).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])
