"""Parquet sink: preserved types, files at checkpoints, and a missing pyarrow."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from heronry.connect import parquet
from heronry.connect.parquet import ParquetSink
from heronry.connect.settings import BadConfig, ConnectError
from tests.support.connectors import checkpoint, made, row


def read(folder: Path) -> list[dict[str, Any]]:
    pq = importlib.import_module("pyarrow.parquet")
    return [found for file in sorted(folder.glob("[!.]*.parquet")) for found in pq.read_table(file).to_pylist()]


def test_names_and_types_are_kept_across_row_groups_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "ROWS_A_GROUP", 3)
    config = {"user.sink.folder": str(tmp_path), "user.sink.types": {"price": "float"}}
    sink = made(ParquetSink(), config)
    rows = [
        {"id": n, "name": f"n{n}", "ok": n % 2 == 0, "raw": bytes([n]), "price": float(n), "none": None}
        for n in range(10)
    ]
    for n, values in enumerate(rows):
        sink.process(row(**{**values, "price": n}))  # an int in a float field
        if n == 6:
            first = sink.prepare(checkpoint(1))
    second = sink.prepare(checkpoint(2))
    assert (read(tmp_path), sorted(sink.prepared())) == ([], [first, second])
    for number, token in ((1, first), (2, second), (2, second)):
        sink.commit(number, token)
    assert read(tmp_path) == rows
    assert sink.prepare(checkpoint(3)) is None
    sink.close()


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        (1, "x", "the field holds int .config 'user.sink.types'"),
        (1, True, "the field holds int"),
        (1, 2**63, "integers have 64 bits"),
        ("a", "\ud800", "UTF-8 cannot encode"),
        (None, [1], "this sink holds str, int, float, bool, bytes and None"),
    ],
)
def test_value_that_cannot_be_held_is_named(first: Any, then: Any, why: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    sink = made(ParquetSink(), {"user.sink.folder": str(tmp_path)})
    sink.process(row(field=first))
    with pytest.raises(ConnectError, match=f"ParquetSink: field 'field' is .*{why}"):
        sink.process(row(field=then))
    sink.close()


def test_late_type_and_unknown_type_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "ROWS_A_GROUP", 2)
    sink = made(ParquetSink(), {"user.sink.folder": str(tmp_path)})
    for _ in range(3):
        sink.process(row(id=1, late=None))
    with pytest.raises(ConnectError, match="field 'late' was None in the first 2 rows of a file"):
        sink.process(row(id=1, late=1.5))
    sink.close()
    with pytest.raises(BadConfig, match="gives field 'a' the type 'money'; there are str, int"):
        made(ParquetSink(), {"user.sink.folder": str(tmp_path), "user.sink.types": {"a": "money"}})


def test_missing_pyarrow_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def without(name: str, *more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConnectError, match=r"needs pyarrow, .*pip install 'heronry\[archive\]'"):
        made(ParquetSink(), {"user.sink.folder": str(tmp_path)})
