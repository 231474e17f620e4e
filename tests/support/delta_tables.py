"""Delta tables for connector tests, read back with another library than the connectors use."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

arrow: Any = pytest.importorskip("pyarrow")
deltalake: Any = pytest.importorskip("deltalake")

UTC = dt.UTC
WORDS = arrow.schema([("word", arrow.string()), ("n", arrow.int64())])
TYPES = arrow.schema(
    [
        arrow.field("n", arrow.int64(), nullable=False), ("word", arrow.string()), ("small", arrow.int16()),
        ("price", arrow.decimal128(10, 2)), ("x", arrow.float64()), ("ok", arrow.bool_()), ("raw", arrow.binary()),
        ("day", arrow.date32()), ("at", arrow.timestamp("us", "UTC")), ("local", arrow.timestamp("us")),
    ]
)  # fmt: skip


def typed(n: int) -> dict[str, Any]:
    """Return a row with a value of every type, or None."""
    full = {
        "n": n, "word": "xyé"[n % 3], "small": n % 7 - 3, "price": Decimal(n) / 4, "x": n / 3, "ok": n % 2 == 0,
        "raw": bytes([n % 256, 0]), "day": dt.date(2020, 1, 1) + dt.timedelta(n),
        "at": dt.datetime(2020, 1, 1, microsecond=n, tzinfo=UTC), "local": dt.datetime(2021, 1, 1, microsecond=n),
    }  # fmt: skip
    return full if n % 5 else {**dict.fromkeys(full), "n": n, "word": full["word"]}


def make(path: Path, schema: Any = WORDS, **more: Any) -> str:
    """Create an empty table."""
    deltalake.DeltaTable.create(str(path), schema, **more)
    return str(path)


def write(path: Path | str, rows: list[dict[str, Any]], schema: Any = WORDS, **more: Any) -> None:
    """Append rows with the library's own writer."""
    table = arrow.Table.from_pylist(rows, schema=schema)
    deltalake.write_deltalake(str(path), table, mode="append", **more)


def rows_of(path: Path | str) -> list[dict[str, Any]]:
    """Return all rows, read with the library's own SQL engine."""
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path))).execute("select * from t")
    found: list[dict[str, Any]] = arrow.table(query).to_pylist()
    return found
