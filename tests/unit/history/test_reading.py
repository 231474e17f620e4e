"""History read with DuckDB: answers do not depend on the roll-up state."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs pyarrow: deploy/spark-setup")
pytest.importorskip("duckdb", reason="needs duckdb: pip install 'heronry[history]'")

from heron_control.history.reading import History, Question, find, level_for, loads
from heron_runtime.failures import NotFound, Unavailable, UsageError
from heron_runtime.model.history import ABOUT, LEVEL_MS, ComponentSummary, MetricRow, TopologySummary, bucket
from heron_runtime.model.sketch import Sketch
from tests.support.history_files import write_raw, write_rolled

START = bucket(1_764_028_800_000, "1d")
PLACE = "local/me/default/words/words-1"


def rows_of(numbers: list[tuple[int, int]]) -> list[MetricRow]:
    found = []
    for at, value in numbers:
        kind = ("counter", "gauge", "latency")[value % 3]
        row = MetricRow(START + at * 10_000, 1, "word", f"container_1_word_{at % 2}", f"__{kind}/x", kind, 1.0)
        if kind == "latency":
            row.bins = dict(Sketch.of([value + 1.0]).bins)
        else:
            row.sum, row.low, row.high, row.last, row.last_ms = float(value), -1.0, value, value, row.start_ms + at % 7
        found.append(row)
    return found


@settings(report_multiple_bugs=False, max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), min_size=1, max_size=30), st.integers(0, 3))
def test_answers_do_not_depend_on_the_roll_up(numbers: list[tuple[int, int]], rolled: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / PLACE
        files = [numbers[n::3] for n in range(3) if numbers[n::3]]
        names = [write_raw(folder, n, rows_of(file)) for n, file in enumerate(files)]
        held = [number for file in files[:rolled] for number in file]
        if held:
            write_rolled(folder, "10m", rows_of(held), names[:rolled])
        points = History(folder).points(Question(START, START + 6_000_000, LEVEL_MS["10m"]))
        counted = sum(value for _, value in numbers if value % 3 == 0)
        assert sum(point.total for point in points if point.series[3] == "counter") == counted
        merged = sum((point.sketch for point in points if point.sketch is not None), Sketch())
        assert merged == Sketch.of(value + 1.0 for _, value in numbers if value % 3 == 2)
        gauges = [value for _, value in numbers if value % 3 == 1]
        assert max((point.high for point in points if point.high and point.series[3] == "gauge"), default=0) == max(
            gauges, default=0
        )
        assert all(point.start_ms % LEVEL_MS["10m"] == 0 for point in points)


def test_metrics_are_selected_by_name_and_instance(tmp_path: Path) -> None:
    write_raw(tmp_path / PLACE, 1, rows_of([(0, 0), (1, 3), (2, 6), (3, 1)]))
    history = History(tmp_path / PLACE)
    assert history.times() == (START, START + 40_000)
    asked = Question(START, START + 40_000, 60_000, metrics=("__counter",), by_instance=True)
    assert [(p.series[1], p.total) for p in history.points(asked)] == [
        ("container_1_word_0", 6.0),
        ("container_1_word_1", 3.0),
    ]
    assert history.points(Question(START, START + 40_000, 60_000, "other")) == []
    assert History(tmp_path / "nothing/there/at/all/x").times() is None


def test_step_selects_a_level() -> None:
    assert [level_for(s * 1000) for s in (10, 30, 60, 300, 600, 7200, 86_400)] == [
        "10s", "10s", "1m", "1m", "10m", "1h", "1d",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="not a multiple of 10 seconds"):
        level_for(15_000)


def test_submission_is_found_by_address(tmp_path: Path) -> None:
    for place, at in ((PLACE, 2.0), (PLACE.replace("-1", "-2"), 1.0), ("local/you/default/words/words-3", 9.0)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / ABOUT).write_text(TopologySummary(at, "1.1", 1, ()).to_json())
    assert find(tmp_path, "local/me/default/words").id == "words-1"
    with pytest.raises(UsageError, match="at 'local/me/default', 'local/you/default'"):
        find(tmp_path, "words")
    with pytest.raises(NotFound, match="did you mean 'words'"):
        find(tmp_path, "wrods")
    with pytest.raises(UsageError, match="invalid topology"):
        find(tmp_path, "me/words")


def test_missing_duckdb_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path / PLACE, 1, rows_of([(0, 0)]))
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(Unavailable) as caught:
        History(tmp_path / PLACE).times()
    assert "pip install 'heronry[history]'" in caught.value.cure


def test_loads_equal_the_counted_values(tmp_path: Path) -> None:
    def row(second: int, component: str, instance: str, metric: str, total: float) -> MetricRow:
        return MetricRow(START + second * 1000, 1, component, instance, metric, "counter", 1.0, total)

    one, two = "container_1_count_2", "container_1_count_3"
    rows = [
        row(0, "word", "container_1_word_1", "__emit-count/default", 90.0),
        row(0, "word", "container_1_word_1", "__backpressured-time-ms", 30_000.0),
        row(0, "count", one, "__execute-count/word/default", 60.0),
        row(60, "count", two, "__execute-count/word/default", 120.0),
        row(60, "count", two, "__busy-time-ms", 2500.0),
        row(60, "count", two, "__py-user-cpu-time-secs", 1.5),
        row(60, "__stmgr__", "stream_manager-1", f"__time_spent_back_pressure_by_compid/{two}", 4000.0),
    ]
    write_raw(tmp_path / PLACE, 1, rows)
    about = TopologySummary(
        1.0, "1.1", 1, (ComponentSummary("word", True, 1), ComponentSummary("count", False, 2, (("word", "default"),)))
    )
    word, count = loads(History(tmp_path / PLACE), about, START, START + 120_000)
    assert (word.tuples, word.held, word.rates) == (90, 1.0, (1.5,))
    assert (count.tuples, count.edges, count.rates) == (180, {"word": 180}, (1.0, 2.0))
    assert [(task.instance, task.busy_secs, task.caused_secs, task.cpu_secs) for task in count.tasks] == [
        (one, 0, 0, 0), (two, 2.5, 4.0, 1.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["local/me/def/words", "local/me/default/word", "loca/me/default/words", "local/me//words"]
)
def test_part_of_a_name_finds_no_submission(tmp_path: Path, name: str) -> None:
    (tmp_path / PLACE).mkdir(parents=True)
    (tmp_path / PLACE / ABOUT).write_text(TopologySummary(2.0, "1.1", 1, ()).to_json())
    with pytest.raises(NotFound):
        find(tmp_path, name)
