"""Metrics sinks: JSON lines in a file, Prometheus over HTTP, and isolation of failing sinks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heron_runtime.launch import Launch
from heron_runtime.model.sketch import Sketch
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from metrics_manager import process
from metrics_manager.collection import Collection
from metrics_manager.process import SinkRunner, find_sinks
from metrics_manager.sinks import SinkContext, jsonlines
from metrics_manager.sinks.jsonlines import JsonLinesSink
from metrics_manager.sinks.prometheus import LABELS, PrometheusSink
from tests.support.distributions import write_distribution


def word(incarnation: int = 1, **counters: float) -> ProcessMetrics:
    began = time.time() - 30 + incarnation
    named = {name.replace("__", "/"): value for name, value in counters.items()}
    return ProcessMetrics(
        "word", "container_1_word_3", 1, 3, incarnation, began + 1,
        {"__emit-count/default": 10.0, "__execute-time-ns/a/default": 2e9, **named},
        {"__pending-acked-count": 4.0, "my gauge": 2.5},
        {"__complete-latency/default": encode_sketch(Sketch.of([8.0] * 100))},
        (ExceptionReport("word", "container_1_word_3", "ValueError", "bad\nline", "t", 3, began, began),),
        began,
    )  # fmt: skip


@pytest.fixture
def context(tmp_path: Path) -> SinkContext:
    launch = Launch("local", "me", "default", "words", "words-1", "memory://", str(tmp_path), str(tmp_path))
    return SinkContext(launch, 1, Collection(), Telemetry("__metricsmgr__", "metricsmgr-1", 1, 0, 1))


def collection(context: SinkContext) -> Collection:
    assert isinstance(context.metrics, Collection)
    return context.metrics


async def test_json_lines_contain_each_report_once(context: SinkContext, tmp_path: Path) -> None:
    sink = JsonLinesSink()
    await sink.open(context)
    await sink.flush()
    collection(context).take(word())
    await sink.flush()
    await sink.flush()
    (line,) = [json.loads(text) for text in (tmp_path / "metrics" / "metrics-1.jsonl").read_text().splitlines()]
    assert line["counters"]["__emit-count/default"] == 10
    assert line["latencies"]["__complete-latency/default"]["p99"] == pytest.approx(8.0, rel=0.01)
    assert line["exceptions"][0]["message"] == "bad\nline"
    await sink.close()


async def test_restored_reports_are_not_written_again(context: SinkContext, tmp_path: Path) -> None:
    collection(context).restore([word()])
    sink = JsonLinesSink()
    await sink.open(replace(context, restored=context.metrics.version))
    await sink.flush()
    assert not (tmp_path / "metrics" / "metrics-1.jsonl").exists()
    collection(context).take(word(incarnation=2))
    await sink.flush()
    assert len((tmp_path / "metrics" / "metrics-1.jsonl").read_text().splitlines()) == 1


async def test_abandoned_flush_writes_its_lines_once(
    context: SinkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, append = threading.Event(), jsonlines.append

    def slowly(path: Path, data: bytes, max_bytes: int) -> None:
        assert go_on.wait(60)
        append(path, data, max_bytes)

    monkeypatch.setattr(jsonlines, "append", slowly)
    sink = JsonLinesSink()
    await sink.open(context)
    collection(context).take(word())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sink.flush()
    go_on.set()
    await sink.flush()
    await sink.flush()
    assert len((tmp_path / "metrics" / "metrics-1.jsonl").read_text().splitlines()) == 1
    collection(context).take(word(incarnation=2))
    await sink.flush()
    assert len((tmp_path / "metrics" / "metrics-1.jsonl").read_text().splitlines()) == 2


def test_file_is_rotated_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    for number in range(50):
        jsonlines.append(path, f"{number:09}\n".encode(), 100)
    assert path.stat().st_size <= 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.jsonl", "m.jsonl.1"]
    assert path.read_text().splitlines()[-1] == "000000049"


async def scrape(port: int, request: str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


@contextlib.asynccontextmanager
async def opened(context: SinkContext) -> AsyncIterator[PrometheusSink]:
    sink = PrometheusSink()
    await sink.open(context)
    try:
        yield sink
    finally:
        await sink.close()


async def test_prometheus_scrape_uses_base_units_and_five_labels(context: SinkContext, tmp_path: Path) -> None:
    collection(context).take(word())
    async with opened(context) as sink:
        assert (tmp_path / "metrics" / "prometheus-1.port").read_text() == f"{sink.port}\n"
        head, body = (await scrape(sink.port)).split("\r\n\r\n", 1)
        assert head.startswith("HTTP/1.1 200")
        samples = {s.name: s for f in text_string_to_metric_families(body) for s in f.samples}
        emitted = samples["heron_emitted_total"]
        assert emitted.value == 10
        assert emitted.labels == {
            "topology": "words", "component": "word", "instance": "container_1_word_3", "stream": "default",
            "container": "1",
        }  # fmt: skip
        assert samples["heron_execute_time_seconds_total"].value == pytest.approx(2.0)
        assert samples["heron_complete_latency_seconds_count"].value == 100
        assert samples["heron_complete_latency_seconds_sum"].value == pytest.approx(0.8, rel=0.01)
        assert samples["heron_user_my_gauge"].value == 2.5
        for sample in samples.values():
            assert set(sample.labels) <= {*LABELS, "le"}
        collection(context).take(word(incarnation=2))
        again = await scrape(sink.port)
        assert 'heron_emitted_total{component="word",container="1"' in again
        assert "} 20.0" in again, "counters go on over a restart of the instance"
        assert (await scrape(sink.port, "GET /other HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 404")
        assert (await scrape(sink.port, "POST /metrics HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 405")
        assert await scrape(sink.port, "x" * 100_000) == ""


async def test_clashing_user_names_keep_the_scrape_valid(context: SinkContext) -> None:
    collection(context).take(word(**{"a-b": 1.0, "a.b": 2.0}))
    async with opened(context) as sink:
        body = (await scrape(sink.port)).split("\r\n\r\n", 1)[1]
        names = [sample.name for family in text_string_to_metric_families(body) for sample in family.samples]
        assert names.count("heron_user_a_b_total") == 1


class Bad:
    """Sink that fails until told to work."""

    works = False
    flushes = 0

    async def open(self, context: SinkContext) -> None: ...

    async def flush(self) -> None:
        type(self).flushes += 1
        if not self.works:
            raise OSError("disk is full")

    async def close(self) -> None: ...


class Slow(Bad):
    """Sink that never returns."""

    flushes = 0

    async def flush(self) -> None:
        type(self).flushes += 1
        await asyncio.Event().wait()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_failing_and_slow_sinks_do_not_block_others(
    context: SinkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LAST_FLUSH_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    runners = [SinkRunner(n, f, context) for n, f in (("bad", Bad), ("slow", Slow), ("jsonlines", JsonLinesSink))]
    path = tmp_path / "metrics" / "metrics-1.jsonl"
    for number in range(1, 5):
        collection(context).take(word(incarnation=number))
        before = Bad.flushes
        for each in runners:
            each.beat()
        await until(lambda n=number: path.exists() and len(path.read_text().splitlines()) >= n)
        await until(lambda b=before: Bad.flushes > b)
    Bad.works = True
    runners[0].beat()
    await until(lambda: "works again" in caplog.text)
    for each in runners:
        await each.stop()
    counters = context.telemetry.report(0.0).counters
    assert counters["__sink-failures/bad"] >= 4
    assert counters["__sink-dropped/slow"] == 3, "every beat but the first, which began it"
    assert caplog.text.count("disk is full") == 1, "logged once per change"
    assert Slow.flushes == 2, "one that hung and the last"


def test_unknown_sinks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert list(find_sinks(["jsonlines", "nonsense"])) == ["jsonlines"]
    assert "nonsense" in caplog.text
    assert "prometheus" in caplog.text


def test_unimportable_sink_is_logged_with_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offers = {"heronry.metrics_sinks": {"mine": "no_such_module:Sink"}}
    monkeypatch.syspath_prepend(write_distribution(tmp_path, "my-sinks", offers))
    assert list(find_sinks(["mine", "jsonlines"])) == ["jsonlines"]
    assert "'mine' of my-sinks 1.0 cannot be loaded" in caplog.text
