"""History of killed topologies over REST: read from files alone, bounded, with errors that name the file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.tracker_process import TrackerProcess, tracker

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")
pytest.importorskip("duckdb", reason="needs duckdb: pip install 'heronry[history]'")

import pyarrow as pa
import pyarrow.parquet as pq

from heron_runtime.model.history import (
    ABOUT,
    EVENTS,
    LEVEL_MS,
    ComponentSummary,
    HistoryEvent,
    MetricRow,
    TopologySummary,
    bucket,
    date_of,
    day_folder,
    file_name,
)
from heron_runtime.model.sketch import Sketch
from metrics_manager.sinks.history import event_table
from tests.support.history_files import write_raw, write_rolled

START = bucket(1_764_028_800_000, "1d")
HAPPENED = [
    HistoryEvent(START + n * 1000, ("pressure", "checkpoint")[n % 2], 1, "word", "m", n + 1, f"event {n}", "{}")
    for n in range(10)
]
WORDS = {"cluster": "local", "environ": "default", "topology": "words"}


def rows(minutes: int) -> list[MetricRow]:
    found = []
    for minute in range(minutes):
        start = START + minute * LEVEL_MS["1m"]
        found.append(MetricRow(start, 1, "word", "container_1_word_1", "__emit-count/default", "counter", 1.0, 60.0))
        values = Sketch.of([float(minute + 1)] * 9)
        latency = MetricRow(start, 1, "word", "container_1_word_1", "__complete-latency/default", "latency", 9.0)
        latency.bins = dict(values.bins)
        found.append(latency)
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackerProcess]:
    """Yield a tracker with the history of two submissions, of events, and of a damaged file; no topology is running."""
    home = tmp_path_factory.mktemp("home")
    below = home / "history" / "local/me/default"
    for number, at in ((1, 100.0), (2, 200.0)):
        folder = below / "words" / f"words-{number}"
        names = [write_raw(folder, 1, rows(90))]
        if number == 2:
            write_rolled(folder, "10m", rows(90), names)
        (folder / ABOUT).write_text(TopologySummary(at, "1.1", 1, (ComponentSummary("word", True, 3),)).to_json())
    day = below / "noisy/noisy-1" / EVENTS / day_folder(date_of(START))
    day.mkdir(parents=True)
    pq.write_table(event_table(pa, HAPPENED), day / file_name(1, 1), store_schema=False)
    torn = below / "torn/torn-1"
    write_raw(torn, 1, rows(1))
    next(torn.rglob("*.parquet")).write_bytes(b"PAR1 and nothing more")
    with tracker("--cluster", f"local=files://{home}/state", log=home / "tracker.log") as process:
        yield process


def test_list_has_the_newest_first_and_marks_them_as_not_running(kept: TrackerProcess) -> None:
    listed = kept.result("/topologies/history", topology="words")
    assert [row["id"] for row in listed] == ["words-2", "words-1"]
    assert listed[0]["components"] == {"word": 3}
    assert listed[0]["running"] is False
    assert len(kept.result("/topologies/history", topology="words", limit=1)) == 1
    assert kept.result("/topologies/history", topology="others") == []


def test_sums_and_percentiles_of_a_killed_topology(kept: TrackerProcess) -> None:
    for chosen in ({}, {"id": "words-1"}):
        found = kept.result("/topologies/history/metrics", **WORDS, **chosen, step=600)
        assert (found["starttime"], found["endtime"] - found["starttime"]) == (START // 1000, 89 * 60 + 10)
        latency, emitted = found["series"]
        assert [point["total"] for point in emitted["points"]] == [600] * 9
        assert [point["count"] for point in latency["points"]] == [90] * 9
        assert latency["points"][0]["p50"] == pytest.approx(5.0, rel=0.01)
        assert latency["points"][8]["p99"] == pytest.approx(90.0, rel=0.01)
    hour = kept.result(
        "/topologies/history/metrics", **WORDS, metricname="__emit-count", step=3600, starttime=START // 1000,
        endtime=START // 1000 + 3600, instance="container_1_word_1",
    )  # fmt: skip
    assert [(s["instance"], [p["total"] for p in s["points"]]) for s in hour["series"]] == [
        ("container_1_word_1", [3600])
    ]


def test_events_are_empty_if_none_were_recorded(kept: TrackerProcess) -> None:
    assert kept.result("/topologies/history/events", **WORDS) == []


def test_events_by_kind_time_and_page(kept: TrackerProcess) -> None:
    noisy = {**WORDS, "topology": "noisy"}

    def asked(**more: object) -> list[int]:
        return [each["count"] for each in kept.result("/topologies/history/events", **noisy, **more)]

    assert asked() == list(range(10, 0, -1))
    assert asked(kind="pressure", limit=3) == [9, 7, 5]
    assert asked(kind=["pressure", "checkpoint"], limit=3, offset=4) == [6, 5, 4]
    assert asked(starttime=START // 1000 + 2, endtime=START // 1000 + 4) == [4, 3]
    newest = kept.result("/topologies/history/events", **noisy, limit=1)[0]
    assert newest == {
        "time": START / 1000 + 9, "kind": "checkpoint", "container": 1, "component": "word", "instance": "m",
        "count": 10, "text": "event 9", "detail": "{}",
    }  # fmt: skip
    code, body = kept.get("/topologies/history/events", **noisy, kind="storm")
    assert (code, "unknown event kind 'storm'" in body["message"]) == (422, True), body


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"topology": "torn"}, 503, "torn-1"),
        ({"topology": "nobody"}, 404, "no history of 'nobody'"),
        ({"topology": "../../.."}, 404, "no history of"),
        ({"id": "words-9"}, 404, "no history of"),
        ({"step": 15}, 422, "not a multiple of 10 seconds"),
        ({"starttime": 20, "endtime": 10}, 422, "is before starttime"),
    ],
)
def test_invalid_request_is_rejected(kept: TrackerProcess, more: dict[str, object], status: int, says: str) -> None:
    code, body = kept.get("/topologies/history/metrics", **{**WORDS, **more})
    assert (code, says in body["message"]) == (status, True), body
