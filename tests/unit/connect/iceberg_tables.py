"""Iceberg tables in a catalog of SQLite to try connectors with, and what is in them."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from lake_tables import WORDS, arrow

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")


def catalog_in(folder: Path) -> dict[str, str]:
    """Its properties."""
    return {
        "name": "tests",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def opened(folder: Path) -> Any:
    """The catalog."""
    return importlib.import_module("pyiceberg.catalog").load_catalog(**catalog_in(folder))


def make(
    folder: Path, schema: Any = WORDS, name: str = "lake.t", by: Iterable[tuple[str, str]] = (), **more: Any
) -> Any:
    """An empty table; ``by``: its partitions, a column and a transform each."""
    catalog = opened(folder)
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    catalog.create_table(name, schema, **more)
    partition(folder, by, name)
    return catalog.load_table(name)


def partition(folder: Path, by: Iterable[tuple[str, str]], name: str = "lake.t") -> None:
    """By these as well, from now on."""
    transforms = importlib.import_module("pyiceberg.transforms")
    with opened(folder).load_table(name).update_spec() as change:
        for column, transform in by:
            change.add_field(column, transforms.parse_transform(transform), f"by_{column}_{transform.partition('[')[0]}")


def write(folder: Path, rows: list[dict[str, Any]], schema: Any = WORDS, name: str = "lake.t") -> None:
    """Append rows, by the library's own writer."""
    opened(folder).load_table(name).append(arrow.Table.from_pylist(rows, schema=schema))


def rows_of(folder: Path, name: str = "lake.t") -> list[dict[str, Any]]:
    """All rows, by the library's own scan."""
    found: list[dict[str, Any]] = opened(folder).load_table(name).scan().to_arrow().to_pylist()
    gc.collect()
    return found
