"""Iceberg tables in an SQLite catalog for connector tests, and their rows."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.delta_tables import WORDS, arrow

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")


def catalog_in(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog."""
    return {
        "name": "tests",
        "type": "sql",
        "uri": f"sqlite:///{quote(str(folder))}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def opened(folder: Path) -> Any:
    """Open the catalog."""
    return importlib.import_module("pyiceberg.catalog").load_catalog(**catalog_in(folder))


def make(
    folder: Path, schema: Any = WORDS, name: str = "lake.t", by: Iterable[tuple[str, str]] = (), **more: Any
) -> Any:
    """Create an empty table; ``by``: its partitions, a column and a transform each."""
    catalog = opened(folder)
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    catalog.create_table(name, schema, **more)
    partition(folder, by, name)
    return catalog.load_table(name)


def partition(folder: Path, by: Iterable[tuple[str, str]], name: str = "lake.t") -> None:
    """Add partition fields for future writes."""
    transforms = importlib.import_module("pyiceberg.transforms")
    with opened(folder).load_table(name).update_spec() as change:
        for column, transform in by:
            name = f"by_{column}_{transform.partition('[')[0]}"
            change.add_field(column, transforms.parse_transform(transform), name)


def write(folder: Path, rows: list[dict[str, Any]], schema: Any = WORDS, name: str = "lake.t") -> None:
    """Append rows with the library's own writer."""
    opened(folder).load_table(name).append(arrow.Table.from_pylist(rows, schema=schema))


def rows_of(folder: Path, name: str = "lake.t") -> list[dict[str, Any]]:
    """Return all rows, read with the library's own scan."""
    found: list[dict[str, Any]] = opened(folder).load_table(name).scan().to_arrow().to_pylist()
    gc.collect()
    return found


def imported(folder: Path, rows: list[dict[str, Any]], word: str) -> None:
    """Add a file without the partition column to the partition of a word."""
    manifest = importlib.import_module("pyiceberg.manifest")
    table = opened(folder).load_table("lake.t")
    path = Path(table.location().removeprefix("file://"), "data", "imported.parquet")
    path.parent.mkdir(exist_ok=True)
    schema = arrow.schema([_field("n", arrow.int64(), table.schema().find_field("n").field_id)])
    importlib.import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(rows, schema), path)
    file = manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA, file_path=f"file://{path}", file_format=manifest.FileFormat.PARQUET,
        partition=importlib.import_module("pyiceberg.typedef").Record(word), record_count=len(rows),
        file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


def with_deletes(folder: Path, kind: str, row: dict[str, Any], name: str = "lake.t") -> None:
    """Delete a row of the table with a delete file, as other engines do and pyiceberg cannot.

    ``position`` deletes the first equal row of its file, ``equality`` all equal rows.
    """
    manifest = importlib.import_module("pyiceberg.manifest")
    table = opened(folder).load_table(name)
    (data,) = [task.file for task in table.scan().plan_files() if row["word"] in task.file.partition._data]
    path = f"{table.location()}/data/deletes-{kind}.parquet"
    positions = arrow.schema(
        [_field("file_path", arrow.string(), 2147483546), _field("pos", arrow.int64(), 2147483545)]
    )
    equal = arrow.schema([_field("n", arrow.int64(), table.schema().find_field("n").field_id)])
    rows = {"position": ([{"file_path": data.file_path, "pos": 0}], positions), "equality": ([row], equal)}[kind]
    importlib.import_module("pyarrow.parquet").write_table(arrow.Table.from_pylist(*rows), path.removeprefix("file://"))
    content = manifest.DataFileContent
    file = manifest.DataFile.from_args(
        content=content.POSITION_DELETES if kind == "position" else content.EQUALITY_DELETES, file_path=path,
        file_format=manifest.FileFormat.PARQUET, partition=data.partition, record_count=1,
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
        equality_ids=[table.schema().find_field("n").field_id] if kind == "equality" else None,
    )  # fmt: skip
    file.spec_id = table.spec().spec_id

    class Deletes(manifest.ManifestWriterV2):  # type: ignore[name-defined,misc]  # pyiceberg is an extra
        def content(self) -> Any:
            return manifest.ManifestContent.DELETES

        @property
        def _meta(self) -> dict[str, str]:
            return {**super()._meta, "content": "deletes"}

    with table.transaction() as change, change.update_snapshot().fast_append() as append:

        def manifests() -> list[Any]:
            output = append.new_manifest_output()
            with Deletes(table.spec(), table.schema(), output, append.snapshot_id, "gzip") as writer:
                writer.add(
                    manifest.ManifestEntry.from_args(
                        status=manifest.ManifestEntryStatus.ADDED, snapshot_id=append.snapshot_id, data_file=file
                    )
                )
            return [writer.to_manifest_file(), *append._existing_manifests()]

        append._manifests = manifests


def _field(name: str, of: Any, number: int) -> Any:
    return arrow.field(name, of, metadata={"PARQUET:field_id": str(number)})
