"""What the benchmarks compute from what they measure."""

from __future__ import annotations

import array
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bars, beside, neighbours
from benchmarks.latency import percentiles
from benchmarks.peers.install import NotInstalled, Peer, python_of
from benchmarks.peers.meter import PeerFailed, measure
from benchmarks.run import Options


def write(folder: Path, name: str, milliseconds: list[float]) -> None:
    with (folder / name).open("wb") as file:
        array.array("d", [value / 1000 for value in milliseconds]).tofile(file)


def test_percentiles_are_over_the_files_of_all_tasks(tmp_path: Path) -> None:
    write(tmp_path, "complete-1", [float(n) for n in range(1, 51)])
    write(tmp_path, "complete-2", [float(n) for n in range(51, 101)])
    write(tmp_path, "latency-3", [7.0])
    found = percentiles(tmp_path, "complete")
    assert found["p50"] == pytest.approx(50, rel=0.002)
    assert found["p99"] == pytest.approx(99, rel=0.002)
    assert percentiles(tmp_path, "latency")["p999"] == pytest.approx(7, rel=0.002)
    assert percentiles(tmp_path, "nothing") == {}


def result(us: float, calibration: float, p50: float = 1.0) -> dict[str, Any]:
    return {
        "cpu_us_per_tuple": us, "tuples_per_second": 1e6 / us, "cores": 1.0, "startup_s": 3.0,
        "complete_latency_ms": {"p50": p50, "p99": 2.0},
        "calibration_ns": calibration, "calibration_reference_ns": 29.0,
        "pss_mb_by_kind": {"spout": 8.0, "last": 6.0, "stream_manager": 50.0},
    }  # fmt: skip


def test_medians_are_raw_and_divided_by_the_calibration_of_each_run() -> None:
    found = bars.medians([result(4.0, 29.0), result(8.0, 58.0), result(9.0, 29.0)])
    assert found["cpu_us_per_tuple"] == 8.0
    assert found["cpu_us_per_tuple_calibrated"] == 4.0
    assert found["pss_mb_per_task"] == 7.0


def test_a_bar_is_met_within_fifteen_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    results = iter([result(2.0, 29.0), result(2.1, 29.0), result(2.2, 29.0)])
    seen: list[Options] = []

    def run(options: Options) -> dict[str, Any]:
        seen.append(options)
        return next(results)

    monkeypatch.setattr(bars, "run", run)
    case = bars.Case("x", Options("wordcount", True), (("cpu_us_per_tuple", 1.9), ("p99", 1.0)))
    found = bars.measure(case, 3, 2.0, None)
    assert found["bars"] == {"cpu_us_per_tuple": [1.9, True], "p99": [1.0, False]}
    assert seen == [replace(case.options, seconds=2.0)] * 3
    assert "met; p99 1.0 **not met**" in bars.row(found)


def test_without_a_program_beside_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(beside.VARIABLE, raising=False)
    assert beside.folder("") is None
    assert beside.folder(str(tmp_path)) is None
    (tmp_path / "proto.py").write_text("")
    assert beside.folder(str(tmp_path)) == tmp_path
    assert beside.run_beside(tmp_path, Options("payload")) is None, "it has no such case"


def test_a_program_beside_gets_the_case_and_gives_its_figures(tmp_path: Path) -> None:
    (tmp_path / "proto.py").write_text(
        "import json, sys\n"
        "asked = json.loads(sys.argv[2])\n"
        "assert asked['comps'] == [['spout', 2], ['count', 2]] and asked['acks'] and asked['containers'] == 2\n"
        "print(json.dumps({'cpu_us/tuple': 3.5, 'emit/s': 500000, 'cores': 1.9, 'by': {'spout': {}}}))\n"
    )
    found = beside.run_beside(tmp_path, Options("wordcount", True, 2, 2))
    assert found is not None
    assert found["cpu_us_per_tuple"] == 3.5
    assert found["calibration_ns"] > 0


def test_a_peer_is_measured_over_its_steady_part() -> None:
    figures = measure([sys.executable, "by_hand_wordcount.py"], 300_000, 1, 120.0)
    assert figures["tuples"] == 300_000
    assert 0.05 < figures["cpu_us_per_tuple"] < 500


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(PeerFailed, match="No such file"):
        measure([sys.executable, str(tmp_path / "none.py")], 1, 1, 60.0)
    with pytest.raises(PeerFailed, match="not through in time"):
        measure([sys.executable, "-c", "import time; time.sleep(60)"], 1, 1, 0.2)


def test_a_peer_that_cannot_be_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.install.cache_folder", lambda: tmp_path)
    with pytest.raises(NotInstalled, match="nothing cannot be installed"):
        python_of(Peer("nothing", (str(tmp_path / "no-such-folder"),), "nothing"))


def test_neighbours_are_told_by_what_they_keep() -> None:
    lines = neighbours.table([(200.0, 190.0), (0.0, 5.0)], (1.0, 2.5), {"crash": 3, "leak": 1}, (10**9, 400_000_000))
    assert "| 1 | 200.0 | 190.0 | 95% |" in lines
    assert "| 2 | 0.0 | 5.0 | – |" in lines, "what did not run has kept nothing"
    assert "Load of the machine: 1.0, then 2.5. Restarts of instances: crash 3, leak 1." in lines[-2]
    assert lines[-1] == "Printed 1000 MB, of which 400 MB are kept in its logs."
