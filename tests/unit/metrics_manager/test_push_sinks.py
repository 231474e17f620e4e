"""Graphite and StatsD sinks: names, differences, and real TCP and UDP listeners."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.launch import Launch
from heron_runtime.model.sketch import Sketch
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.metrics import ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from metrics_manager.collection import Collection
from metrics_manager.sinks import SinkContext
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


def report(executed: float, when: float | None = None) -> ProcessMetrics:
    sketch = encode_sketch(Sketch.of([10.0] * 100))
    return ProcessMetrics(
        "count", "container_1_count_3", 1, 3, 7, when or time.time(), {"__execute-count/word/default": executed},
        {"__pending-acked-count": 12.0}, {"__process-latency/word/default": sketch},
    )  # fmt: skip


def context(tmp_path: Path, **settings: object) -> SinkContext:
    launch = Launch("local", "ada", "default", "Words", "w-1", "", str(tmp_path), str(tmp_path), settings=settings)
    return SinkContext(launch, 1, Collection(), Telemetry("__metricsmgr__", "metrics_manager-1", 1, 0, 1))


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
        while data := await reader.readline():
            lines.put_nowait(data.decode())

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    where = {"heron.metrics.graphite.address": f"127.0.0.1:{port}", "heron.metrics.prefix": "prod.heron"}
    opened = context(tmp_path, **where)
    sink = GraphiteSink()
    await sink.open(opened)
    opened.metrics.take(report(40.0))  # type: ignore[attr-defined]
    await sink.flush()
    name = "prod.heron.Words.count.container_1_count_3"
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
    for writer in writers:
        writer.close()


async def test_unavailable_graphite_raises_instead_of_hanging(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        opened = context(tmp_path, **{"heron.metrics.graphite.address": address})
        opened.metrics.take(report(1.0))  # type: ignore[attr-defined]
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
        opened = context(tmp_path, **{"heron.metrics.statsd.address": address})
        sink = StatsdSink()
        await sink.open(opened)
        counted = []
        for total in (40.0, 40.0, 65.0):
            opened.metrics.take(report(total))  # type: ignore[attr-defined]
            await sink.flush()
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listener, 2000), 30)
            lines = data.decode().split("\n")
            assert all(line.startswith("heron.Words.count.container_1_count_3.") for line in lines)
            counted += [line.split(":")[1] for line in lines if line.endswith("|c")]
            assert [line for line in lines if line.endswith(":12|g")]
        assert counted == ["40|c", "25|c"]
        await sink.close()
