"""Spark requests that are rejected before a start, and durability of results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from heron_runtime.failures import UsageError
from heronry.streamlet import Builder, files, to_files

pytest.importorskip("pyspark")

from data_pipeline.shell.output import OutputFolder, local_path
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request
from data_pipeline.shell.resolved_request import resolve_request


@pytest.mark.parametrize(
    ("paths", "form", "said"),
    [
        (("/in/a", "/in/b"), "", "step 'lines' has two paths, /in/a and /in/b"),
        (("lines=/in/a", "/in/b"), "", "step 'lines' has two paths, /in/a and /in/b"),
        (("/in/a", "/in/b"), "archive", "the archive has two paths, /in/a and /in/b"),
    ],
)
def test_second_input_path_for_one_source_is_rejected(paths: tuple[str, ...], form: str, said: str) -> None:
    builder = Builder("program")
    builder.source(files("/in", format="text"), name="lines").sink(to_files("out"))
    request = Request(Path("p.py"), input_paths=paths, input_format=form, dry_run=True)
    with pytest.raises(UsageError, match=said):
        resolve_request(request, Loaded(builder.build(), ()))


def test_malformed_url_is_rejected() -> None:
    with pytest.raises(UsageError, match=r"'hdfs://\[::1/out' is not a URL"):
        local_path("hdfs://[::1/out")


@pytest.mark.parametrize("replace", [False, True])
def test_result_name_is_synced_before_servers_commit(
    tmp_path: Path, replace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, synced = tmp_path / "out", list[bool]()
    if replace:
        out.mkdir()
        (out / "old").touch()
    sync = os.fsync

    def record(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), os.stat(tmp_path)):
            synced.append((out / "_heronry.json").exists())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    none: Any = None  # a local folder does not need Spark
    OutputFolder(none, str(out), replace=replace).commit({"to_ms": 5})
    assert synced == [True]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
