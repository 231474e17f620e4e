"""Events of the history: selection by kind, time and page, across compaction, with audit records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")
pytest.importorskip("duckdb", reason="needs duckdb: pip install 'heronry[history]'")

import json

import pyarrow as pa
import pyarrow.parquet as pq

from data_pipeline.shell import audit
from data_pipeline.shell.history_rows import joined
from heron_cli.options import parse_past_instant
from heron_control.history.reading import Events, History, find
from heron_runtime.failures import NotFound, UsageError
from heron_runtime.model.history import (
    ABOUT,
    EVENTS,
    HistoryEvent,
    TopologySummary,
    compacted_name,
    date_of,
    day_folder,
    file_name,
)
from metrics_manager.sinks.history import event_table

START = 1_764_028_800_000
PLACE = "local/me/default/words/words-1"


def happened(number: int) -> HistoryEvent:
    kind = ("pressure", "checkpoint", "exception")[number % 3]
    return HistoryEvent(
        START + number * 1000, kind, 1, "words", "stream_manager-1", number % 4 + 1, f"event {number}", "{}"
    )


def write(folder: Path, number: int, events: list[HistoryEvent]) -> Path:
    day = folder / EVENTS / day_folder(date_of(START))
    day.mkdir(parents=True, exist_ok=True)
    pq.write_table(event_table(pa, events), day / file_name(1, number), store_schema=False)
    return day / file_name(1, number)


def numbers(found: Iterable[HistoryEvent]) -> list[int]:
    return [int(event.text.split()[1]) for event in found]


def test_events_are_selected_by_kind_time_and_page(tmp_path: Path) -> None:
    folder = tmp_path / PLACE
    paths = [write(folder, n + 1, [happened(number) for number in range(n, 30, 3)]) for n in range(3)]
    history = History(folder)
    assert history.events() == [happened(number) for number in range(29, -1, -1)]
    assert numbers(history.events(Events(frozenset({"checkpoint"})))) == list(range(28, 0, -3))
    assert numbers(history.events(Events(from_ms=START + 5000, to_ms=START + 9000))) == [8, 7, 6, 5]
    pages = [numbers(history.events(Events(limit=7, offset=offset))) for offset in range(0, 35, 7)]
    assert [number for page in pages for number in page] == list(range(29, -1, -1))
    with pytest.raises(UsageError, match="unknown event kind 'storm'"):
        history.events(Events(frozenset({"storm"})))
    joined([str(path) for path in paths], str(paths[0].parent / compacted_name(1, 1, 3)), piece=8)
    assert history.events() == [happened(number) for number in range(29, -1, -1)], "before its files are removed"
    for path in paths:
        path.unlink()
    assert history.events() == [happened(number) for number in range(29, -1, -1)], "and after"


def line(at: str, what: str, topology: str, **more: object) -> str:
    return json.dumps({"at": at, "what": what, "who": "submit:ci", "from": "192.0.2.1", "result": 200, **more} | {
        "topology": topology} )  # fmt: skip


def test_audit_records_are_included(tmp_path: Path) -> None:
    for name, at in (("words-1", START / 1000), ("words-2", START / 1000 + 3600)):
        folder = tmp_path / "local/me/default/words" / name
        folder.mkdir(parents=True)
        (folder / ABOUT).write_text(TopologySummary(at, "1.1", 1, ()).to_json())
    write(tmp_path / PLACE, 1, [happened(4)])
    record = tmp_path / "api" / "audit.jsonl"
    record.parent.mkdir()
    mine, odd = "local/me/default/words", "local/me/default/it's"
    lines = [
        line("2025-11-25T00:00:01.000+00:00", "submit", mine), line("2025-11-25T00:30:00.000+00:00", "kill", mine),
        line("2025-11-25T00:30:00.000+00:00", "kill", odd), line("2025-11-25T01:00:01.000+00:00", "submit", mine),
        line("2025-11-25T01:00:02.000+00:00", "refused", "", repeats=7), "no line of ours",
    ]  # fmt: skip
    record.write_text("\n".join(lines) + "\n" + '{"at": "torn')
    assert audit.take(tmp_path, record) == (5, 1)
    first = History(tmp_path / PLACE).events()
    assert [event.kind for event in first] == ["audit", "checkpoint", "audit"]
    assert first[0].text == "kill local/me/default/words by submit:ci from 192.0.2.1: 200"
    assert (first[0].instance, json.loads(first[0].detail)["what"]) == ("submit:ci", "kill")
    second = History(tmp_path / PLACE.replace("-1", "-2")).events(Events(frozenset({"audit"})))
    assert [event.text.split()[0] for event in second] == ["submit"], "of this submission, not of the one before"
    assert audit.take(tmp_path, record) == (0, 1)
    with pytest.raises(NotFound, match="no such file"):
        audit.take(tmp_path, tmp_path / "nothing.jsonl")
    day = next((tmp_path / ".audit").rglob("*.parquet"))
    assert day.stat().st_mode & 0o077 == 0, "for its owner alone"
    assert find(tmp_path, "words", "words-1").id == "words-1"
    with pytest.raises(NotFound, match="no history of a submission 'words-9'"):
        find(tmp_path, "words", "words-9")


def test_past_instants_are_parsed() -> None:
    assert parse_past_instant("", 0.0) is None
    assert parse_past_instant("2025-11-25", 0.0) == START
    assert parse_past_instant("2025-11-25T01:00+01:00", 0.0) == START
    assert [parse_past_instant(text, 1000.0) for text in ("90s", "1.5m", "9d")] == [910_000, 910_000, 0]
    for text in ("yesterday", "9x", "m", "25:00"):
        with pytest.raises(UsageError, match="invalid time"):
            parse_past_instant(text, 0.0)
