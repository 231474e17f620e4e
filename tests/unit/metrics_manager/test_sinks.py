"""Metrics sinks: JSON lines, Prometheus, Graphite and StatsD with real listeners, and isolation of failing sinks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from metrics_manager.sinks.text_protocols import (
    Differences,
    GraphiteSink,
    ProcessValues,
    StatsdSink,
    datagrams,
    graphite_lines,
    metric_path,
    parse_address,
)
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


def make_context(folder: Path, **settings: object) -> SinkContext:
    launch = Launch("local", "me", "default", "words", "words-1", "", str(folder), str(folder), settings=settings)
    return SinkContext(launch, 1, Collection(), Telemetry("__metricsmgr__", "metricsmgr-1", 1, 0, 1))


@pytest.fixture
def context(tmp_path: Path) -> SinkContext:
    return make_context(tmp_path)


def collection(context: SinkContext) -> Collection:
    assert isinstance(context.metrics, Collection)
    return context.metrics


def written(folder: Path) -> list[str]:
    """Return the lines of the file of reports."""
    path = folder / "metrics" / "metrics-1.jsonl"
    return path.read_text().splitlines() if path.exists() else []


async def test_json_lines_contain_each_report_once(context: SinkContext, tmp_path: Path) -> None:
    sink = JsonLinesSink()
    await sink.open(context)
    await sink.flush()
    collection(context).take(word())
    await sink.flush()
    await sink.flush()
    line = json.loads(*written(tmp_path))
    assert line["counters"]["__emit-count/default"] == 10
    assert line["latencies"]["__complete-latency/default"]["p99"] == pytest.approx(8.0, rel=0.01)
    assert line["exceptions"][0]["message"] == "bad\nline"
    await sink.close()


async def test_restored_reports_are_not_written_again(context: SinkContext, tmp_path: Path) -> None:
    collection(context).restore([word()])
    sink = JsonLinesSink()
    await sink.open(replace(context, restored=context.metrics.version))
    await sink.flush()
    assert written(tmp_path) == []
    collection(context).take(word(incarnation=2))
    await sink.flush()
    assert len(written(tmp_path)) == 1


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
    assert len(written(tmp_path)) == 1
    collection(context).take(word(incarnation=2))
    await sink.flush()
    assert len(written(tmp_path)) == 2


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


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_failing_and_slow_sinks_do_not_block_others(
    context: SinkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LAST_FLUSH_SECONDS", 0.05)
    caplog.set_level(logging.INFO)
    runners = [SinkRunner(n, f, context) for n, f in (("bad", Bad), ("slow", Slow), ("jsonlines", JsonLinesSink))]
    for number in range(1, 5):
        collection(context).take(word(incarnation=number))
        before = Bad.flushes
        for each in runners:
            each.beat()
        await wait_until(lambda n=number: len(written(tmp_path)) >= n)
        await wait_until(lambda b=before: Bad.flushes > b)
    Bad.works = True
    runners[0].beat()
    await wait_until(lambda: "works again" in caplog.text)
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


def report(executed: float, when: float | None = None) -> ProcessMetrics:
    sketch = encode_sketch(Sketch.of([10.0] * 100))
    return ProcessMetrics(
        "count", "container_1_count_3", 1, 3, 7, when or time.time(), {"__execute-count/word/default": executed},
        {"__pending-acked-count": 12.0}, {"__process-latency/word/default": sketch},
    )  # fmt: skip


@given(st.text(max_size=300), st.text(max_size=300), st.floats(allow_nan=True))
def test_graphite_line_has_three_words(component: str, name: str, value: float) -> None:
    process = ProcessValues(component, "i", 1_000.0, {name: value})
    for line in graphite_lines("heron.prod", "t", [process]):
        path, number, moment = line.split(" ")
        assert path == metric_path("heron.prod", "t", process, name)
        assert float(number) == pytest.approx(value)
        assert moment == "1000\n"
        assert path.isascii()


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=20))
def test_sent_differences_sum_to_the_total(steps: list[tuple[int, bool]]) -> None:
    differences, total, told = Differences(), 0, 0.0
    for growth, leaves in steps:
        total += growth
        lines = differences.take("heron", "t", [ProcessValues("c", "i", 0.0, {"n": float(total)})])
        if leaves:
            told += sum(float(line.split(":")[1].split("|")[0]) for line in lines)
            differences.sent()
    lines = differences.take("heron", "t", [ProcessValues("c", "i", 0.0, {"n": float(total)})])
    assert told + sum(float(line.split(":")[1].split("|")[0]) for line in lines) == total


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=90)))
def test_datagrams_hold_complete_lines_and_are_small(lines: list[str]) -> None:
    packets = list(datagrams(lines, 64))
    assert all(0 < len(packet) <= 64 for packet in packets)
    assert [line for packet in packets for line in packet.decode().split("\n")] == [n for n in lines if len(n) <= 64]


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:70000", "host:x"])
def test_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_address(text)
    assert parse_address("[::1]:2003") == ("::1", 2003)


async def test_graphite_receives_totals_and_again_after_a_disconnect(tmp_path: Path) -> None:
    lines: asyncio.Queue[str] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while data := await reader.readline():
                lines.put_nowait(data.decode())
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    where = {"heron.metrics.graphite.address": f"127.0.0.1:{port}", "heron.metrics.prefix": "prod.heron"}
    opened = make_context(tmp_path, **where)
    sink = GraphiteSink()
    await sink.open(opened)
    collection(opened).take(report(40.0))
    await sink.flush()
    name = "prod.heron.words.count.container_1_count_3"
    found = {(line := await asyncio.wait_for(lines.get(), 30)).split(" ")[0]: line for _ in range(6)}
    assert found[f"{name}.__execute-count.word.default"].split(" ")[1] == "40"
    assert float(found[f"{name}.__process-latency.word.default.p99"].split(" ")[1]) == pytest.approx(10, rel=0.02)
    assert found[f"{name}.__pending-acked-count"].split(" ")[1] == "12"
    for writer in writers:
        writer.transport.abort()
    failures = 0
    async with asyncio.timeout(60):
        while lines.empty():
            try:
                await sink.flush()
            except OSError:
                failures += 1
            await asyncio.sleep(0.01)
    await sink.close()
    server.close()


async def test_unavailable_graphite_raises_instead_of_hanging(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        opened = make_context(tmp_path, **{"heron.metrics.graphite.address": address})
        collection(opened).take(report(1.0))
        sink = GraphiteSink()
        await sink.open(opened)
        with pytest.raises(OSError, match=r"."):
            await sink.flush()
        await sink.close()


async def test_statsd_receives_differences_over_udp(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        opened = make_context(tmp_path, **{"heron.metrics.statsd.address": address})
        sink = StatsdSink()
        await sink.open(opened)
        counted = []
        for total in (40.0, 40.0, 65.0):
            collection(opened).take(report(total))
            await sink.flush()
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listener, 2000), 30)
            lines = data.decode().split("\n")
            assert all(line.startswith("heron.words.count.container_1_count_3.") for line in lines)
            counted += [line.split(":")[1] for line in lines if line.endswith("|c")]
            assert [line for line in lines if line.endswith(":12|g")]
        assert counted == ["40|c", "25|c"]
        await sink.close()
