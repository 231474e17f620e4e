"""``history`` sink with real files: contents across faults, bounds, and a full disk."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")

import pyarrow.parquet as pq

from heron_runtime.launch import Launch
from heron_runtime.model.plan import ContainerPlan, InstancePlan, PackingPlan
from heron_runtime.model.records import ExecutionState
from heron_runtime.model.sketch import Sketch
from heron_runtime.model.topology import ComponentKind, ComponentSpec, TopologyDefinition, TopologyState
from heron_runtime.state import open_store, topologies
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from metrics_manager.collection import Collection
from metrics_manager.sinks import SinkContext, history
from metrics_manager.sinks.history import HistorySink

EACH_BEAT = {"heron.history.file.secs": 1e-9}


def report(seconds: float, total: float, incarnation: int = 1) -> ProcessMetrics:
    error = ExceptionReport("word", "container_1_word_1", "ValueError", "bad", "trace", 2, seconds, seconds)
    return ProcessMetrics(
        "word", "container_1_word_1", 1, 1, incarnation, seconds, {"__emit-count/default": total},
        {"__pending-acked-count": 4.0}, {"__complete-latency/default": encode_sketch(Sketch.of([8.0] * 100))},
        (error,), seconds - 1,
    )  # fmt: skip


def context(tmp_path: Path, container: int = 1, **settings: Any) -> SinkContext:
    home = tmp_path / "topologies" / "local" / "me" / "default" / "words"
    store = f"files://{tmp_path}/state"
    submitted = open_store(store)
    submitted.open()
    submitted.close()
    launch = Launch("local", "me", "default", "words", "words-1", store, str(home), str(tmp_path), settings=settings)
    return SinkContext(launch, container, Collection(), Telemetry("__metricsmgr__", "m", 1, 0, 1))


async def told(found: SinkContext, *reports: ProcessMetrics) -> HistorySink:
    assert isinstance(found.metrics, Collection)
    sink = HistorySink()
    await sink.open(found)
    for each in reports:
        found.metrics.take(each)
        await sink.flush()
    return sink


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    files = sorted(tmp_path.glob("history/local/me/default/words/*/metrics/10s/date=*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def emitted(tmp_path: Path) -> float:
    return sum(row["sum"] for row in rows(tmp_path) if row["metric"] == "__emit-count/default")


async def test_rows_contain_growth_and_measured_values(tmp_path: Path) -> None:
    now = time.time()
    sink = await told(context(tmp_path, **EACH_BEAT), report(now, 10), report(now + 1, 25))
    await sink.close()
    assert emitted(tmp_path) == 25
    (latency,) = [row for row in rows(tmp_path) if row["kind"] == "latency"]
    assert dict(zip(latency["bins"], latency["counts"], strict=True)) == Sketch.of([8.0] * 100).bins
    gauges = [row for row in rows(tmp_path) if row["kind"] == "gauge"]
    assert {(g["low"], g["high"], g["last"]) for g in gauges} == {(4, 4, 4)}
    (events,) = tmp_path.glob("history/local/me/default/words/words-1/events/date=*/c1-*.parquet")
    (event,) = pq.ParquetFile(events).read().to_pylist()
    assert (event["kind"], event["count"], event["text"]) == ("exception", 2, "ValueError: bad")


async def test_killed_metrics_manager_resumes_after_its_last_file(tmp_path: Path) -> None:
    now = time.time()
    await told(context(tmp_path, **EACH_BEAT), report(now, 10))
    await told(context(tmp_path), report(now + 1, 20))  # killed before a file was due
    sink = await told(context(tmp_path, **EACH_BEAT), report(now + 2, 40))
    await sink.close()
    assert emitted(tmp_path) == 40


@pytest.mark.parametrize("file_is_there", [False, True])
async def test_sink_detects_whether_its_last_file_was_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_is_there: bool
) -> None:
    now = time.time()
    await told(context(tmp_path, **EACH_BEAT), report(now, 10))
    write = history._write_table

    def dies(path: Path, table: Any) -> None:
        if file_is_there or "metrics" not in path.parts:
            write(path, table)
        if "metrics" in path.parts:
            raise RuntimeError("killed")

    monkeypatch.setattr(history, "_write_table", dies)
    with pytest.raises(RuntimeError, match="killed"):
        await told(context(tmp_path, **EACH_BEAT), report(now + 1, 20))
    monkeypatch.undo()
    sink = await told(context(tmp_path, **EACH_BEAT), report(now + 2, 40))
    await sink.close()
    assert emitted(tmp_path) == 40


async def test_full_disk_is_reported_and_loses_no_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    found = context(tmp_path, **EACH_BEAT)
    sink = await told(found, report(now, 10))

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    assert isinstance(found.metrics, Collection)
    with monkeypatch.context() as patch:
        patch.setattr(history, "replace_file", full)
        for n in range(3):
            found.metrics.take(report(now + 1 + n, 11 + n))
            with pytest.raises(OSError, match="No space left on device"):
                await sink.flush()
    await sink.flush()
    assert emitted(tmp_path) == 13
    await sink.close()


async def test_file_of_an_abandoned_flush_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = context(tmp_path, **EACH_BEAT)
    sink = await told(found)
    begun, go_on, write = threading.Event(), threading.Event(), history._write_table

    def slow(path: Path, table: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        write(path, table)

    monkeypatch.setattr(history, "_write_table", slow)
    assert isinstance(found.metrics, Collection)
    found.metrics.take(report(time.time(), 10))
    flushing = asyncio.create_task(sink.flush())
    await asyncio.to_thread(begun.wait, 60)
    flushing.cancel()
    await asyncio.gather(flushing, return_exceptions=True)
    found.metrics.take(report(time.time() + 1, 25))
    last = asyncio.create_task(sink.flush())
    await asyncio.sleep(0)
    go_on.set()
    await last
    await sink.close()
    assert emitted(tmp_path) == 25


async def test_oldest_files_are_removed(tmp_path: Path) -> None:
    now = time.time()
    settings = {**EACH_BEAT, "heron.history.max.bytes": 8000}
    sink = await told(context(tmp_path, **settings), *(report(now + n, n) for n in range(10)))
    await sink.close()
    files = sorted(tmp_path.glob("history/**/10s/**/*.parquet"))
    assert 1 <= len(files) < 10
    assert sum(file.stat().st_size for file in files) <= 8000
    assert files[-1].name == "c1-9.parquet" or max(int(f.stem.partition("-")[2]) for f in files) == 10


async def test_container_0_describes_the_topology_and_removes_old_data(tmp_path: Path) -> None:
    found = context(tmp_path, 0, **EACH_BEAT)
    store = open_store(found.launch.store_url)
    store.open()
    spout = ComponentSpec("word", ComponentKind.SPOUT, "words:Word", 2)
    packing = PackingPlan("words", (ContainerPlan(1, (InstancePlan(1, "word", 0), InstancePlan(2, "word", 1))),))
    state = ExecutionState("words", "words-1", "local", "me", "default", TopologyState.RUNNING, "me", 12.0)
    topologies.submit(store, TopologyDefinition("words", "words-1", (spout,)), packing, state)
    store.close()
    old = tmp_path / "history/local/me/default/words/words-0/metrics/10s/date=2020-01-01"
    old.mkdir(parents=True)
    sink = await told(found)
    assert old.exists(), "not yet: it is as new as rows are kept"
    await sink.close()
    for path in [old, *old.parents][:5]:
        os.utime(path, (0, 0))
    sink = await told(context(tmp_path, 0, **EACH_BEAT))
    await sink.close()
    assert not old.exists()
    about = history.read_about(tmp_path / "history/local/me/default/words/words-1")
    assert about is not None
    assert [(part.name, part.parallelism) for part in about.parts] == [("word", 2)]
    (event,) = [
        row
        for file in tmp_path.glob("history/**/words-1/events/**/*.parquet")
        for row in pq.ParquetFile(file).read().to_pylist()
    ]
    assert (event["kind"], event["text"]) == ("plan", "tasks word: 2; containers: 1")


async def test_missing_pyarrow_or_folder_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = context(tmp_path)
    docker = replace(found, launch=replace(found.launch, settings={"heron.scheduler": "docker"}))
    with pytest.raises(Exception, match=r"set heron\.history\.folder to a folder"):
        await HistorySink().open(docker)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Exception, match=r"pip install 'heronry\[history\]'"):
        await HistorySink().open(found)
