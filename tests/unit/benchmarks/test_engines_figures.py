"""What the bench of three engines compares: answers as rows, whoever wrote them, and bars."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engines import __main__ as engines
from benchmarks.engines.answers import ROWS, Differs, answer


def lines(place: Path, *records: dict[str, Any]) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(json.dumps(record) + "\n" for record in records))
    return place


def test_an_answer_is_the_same_whatever_the_order_files_and_names(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="DuckDB comes with it and Spark; the spark group runs this")
    ours = tmp_path / "ours"
    sides = {"left": {"time": 5, "user": "u"}, "right": {"time": 7, "user": "u"}}
    lines(ours / "output" / "part-0.json", {"key": "u", "start": 0, "end": 9, **sides})
    lines(ours / "output" / "part-1.json", {"key": "v", "start": 0, "end": 9, **sides})
    (ours / "output" / "_final-output-0-of-1").touch()
    theirs = [{"key": "v", "clicked": 5, "bought": 7}, {"key": "u", "clicked": 5, "bought": 7}]
    all_rows = lines(tmp_path / "all.json", *theirs)
    assert answer("join", ours) == answer("join", all_rows) == (2, answer("join", all_rows)[1])
    assert answer("join", lines(tmp_path / "less.json", *theirs[:1])) != answer("join", ours)
    other = lines(tmp_path / "other.json", theirs[0], theirs[1] | {"bought": 8})
    assert answer("join", other) != answer("join", ours)
    with pytest.raises(FileNotFoundError, match="no results"):
        answer("words", tmp_path / "nothing")


def test_bars_are_ratios_of_processor_seconds_to_those_by_hand() -> None:
    found = {"batch": {"cpu_s": 23.0}, "PySpark": {"cpu_s": 20.0}, "streaming": {"cpu_s": 30.0}}
    assert engines.bars(found) == {"batch": pytest.approx(1.15)}


def test_a_way_that_gives_other_rows_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def way(rows: int) -> Any:
        def run(case: str, data: Path, work: Path) -> tuple[float, float]:
            lines(work / "part-0.json", *({"key": str(n), "value": n} for n in range(rows)))
            return 1.0, 2.0

        return run

    monkeypatch.setattr(engines, "answer", lambda case, work: (len((work / "part-0.json").read_text()), 0))
    monkeypatch.setattr(engines, "WAYS", {"batch": way(2), "PySpark": way(2), "DuckDB": way(3)})
    found = engines.measure("words", ["batch", "PySpark"], tmp_path, 2)
    assert found == {way: {"seconds": 1.0, "cpu_s": 2.0} for way in ("batch", "PySpark")}
    with pytest.raises(Differs, match="words: not the same rows"):
        engines.measure("words", ["batch", "DuckDB"], tmp_path, 1)
    assert set(ROWS) == {"words", "windows", "join", "sessions", "topk"}
