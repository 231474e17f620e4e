"""Ten million rows of history rolled up on Spark, and read by DuckDB: seconds, and the memory of all processes.

    python -m benchmarks.history [--rows 10000000] [--json FILE]

A day of a topology of 20 instances with 58 metrics each (22 counters, 30 gauges, 6 latencies of 12 bins), in files of
five minutes. Checked: the day's sum of each counter, and the count of each sketch, against numpy's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from heron_control.history.reading import History, Question
from heron_runtime.model.history import (
    ABOUT,
    DAY_MS,
    LEVEL_MS,
    METRICS,
    RAW,
    ComponentSummary,
    TopologySummary,
    bucket,
    date_of,
    day_folder,
    file_name,
)

INSTANCES, COUNTERS, GAUGES, LATENCIES, BINS = 20, 22, 30, 6, 12
SERIES = INSTANCES * (COUNTERS + GAUGES + LATENCIES)
FILE_BUCKETS = 30  # of ten seconds
PLACE = "local/me/default/words/words-1"
START = bucket(1_764_028_800_000, "1d")


def generate(folder: Path, rows: int) -> tuple[float, float]:
    """Write the day; the sum of all counters, and the count of all sketches."""
    day = folder / METRICS / RAW / day_folder(date_of(START))
    day.mkdir(parents=True)
    (folder / ABOUT).write_text(
        TopologySummary(START / 1000, "1.1", 1, (ComponentSummary("word", False, INSTANCES),)).to_json()
    )
    kinds = ["counter"] * COUNTERS + ["gauge"] * GAUGES + ["latency"] * LATENCIES
    metrics = [f"__{kind}-{n}/default" for n, kind in enumerate(kinds)] * INSTANCES
    kind = np.array(kinds * INSTANCES)
    instances = [f"container_1_word_{n}" for n in range(INSTANCES) for _ in kinds]
    chance, total, counted, buckets = np.random.default_rng(1), 0.0, 0.0, rows // SERIES
    for number, first in enumerate(range(0, buckets, FILE_BUCKETS), 1):
        repeats = min(FILE_BUCKETS, buckets - first)
        count = SERIES * repeats
        kinds_here = np.tile(kind, repeats)
        values = chance.integers(0, 1_000_000, count).astype(float)
        is_gauge, is_latency = kinds_here == "gauge", kinds_here == "latency"
        starts = START + 10_000 * (first + np.repeat(np.arange(repeats), SERIES))
        lengths = np.where(is_latency, BINS, 0)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        bins = chance.integers(0, 400, offsets[-1] // BINS).repeat(BINS) + np.tile(np.arange(BINS), offsets[-1] // BINS)
        counts = chance.integers(1, 1000, offsets[-1]).astype(float)
        plain = np.where(is_latency, 0.0, values)
        counts_of = np.ones(count)
        counts_of[is_latency] = counts.reshape(-1, BINS).sum(axis=1)
        gauge = [None if not g else v for g, v in zip(is_gauge, values, strict=True)]
        table = pa.table(
            {
                "start_ms": starts, "container": np.ones(count, np.int32), "component": ["word"] * count,
                "instance": instances * repeats, "metric": metrics * repeats, "kind": kinds_here,
                "count": counts_of, "sum": plain,
                **{name: pa.array(gauge, pa.float64()) for name in ("low", "high", "last")},
                "last_ms": pa.array(
                    [s if g else None for g, s in zip(is_gauge, starts.tolist(), strict=True)], pa.int64()
                ),
                "bins": pa.ListArray.from_arrays(offsets, pa.array(bins, pa.int32())),
                "counts": pa.ListArray.from_arrays(offsets, counts),
            }
        )  # fmt: skip
        pq.write_table(table, day / file_name(1, number), compression="zstd", store_schema=False)
        total += float(plain[kinds_here == "counter"].sum())
        counted += float(counts.sum())
    return total, counted


def rolled_up(root: Path) -> dict[str, Any]:
    """Run the command; its seconds, those of processors, and the greatest memory of all its processes, sampled."""
    began, peak = time.monotonic(), 0
    worked: dict[int, float] = {}
    command = [sys.executable, "-m", "heron_cli", "pipeline", "roll-up", "--history", str(root), "--master", "local[2]"]
    for level in LEVEL_MS:  # the day that is made here is an old one
        command += ["--keep", f"{level}=9999"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        memory = 0
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in (watched, *watched.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory += one.memory_info().rss
                    worked[one.pid] = sum(one.cpu_times()[:2])
        peak = max(peak, memory)
        time.sleep(0.25)
    said = process.stderr.read() if process.stderr is not None else ""
    if process.returncode:
        raise SystemExit(said)
    return {
        "seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(sum(worked.values()), 1),
        "peak_mb": peak // 2**20, "said": said.splitlines(),
    }  # fmt: skip


def read(folder: Path, total: float, counted: float) -> dict[str, float]:
    """Milliseconds of questions as the tracker has them; the sums are checked."""
    history, found = History(folder), {}
    questions = {
        "one metric, an hour by minutes": Question(
            START, START + 3_600_000, LEVEL_MS["1m"], "word", "", ("__counter-0",)
        ),
        "one metric, the day by 10 minutes": Question(
            START, START + DAY_MS, LEVEL_MS["10m"], "word", "", ("__counter-0",)
        ),
        "percentiles, the day by hours": Question(START, START + DAY_MS, LEVEL_MS["1h"], "word", "", ("__latency-52",)),
        "everything, the day": Question(START, START + DAY_MS, LEVEL_MS["1d"]),
    }
    for name, question in questions.items():
        times = []
        for _ in range(5):
            began = time.perf_counter()
            points = history.points(question)
            times.append(time.perf_counter() - began)
        found[name] = round(1000 * sorted(times)[len(times) // 2], 1)
    assert sum(p.total for p in points if p.series[3] == "counter") == total, "sums are exact"
    assert sum(p.count for p in points if p.series[3] == "latency") == counted, "sketches are whole"
    return found


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heronry-history-") as place:
        folder = Path(place) / PLACE
        began = time.monotonic()
        total, counted = generate(folder, options.rows)
        raw = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        print(f"{options.rows:,} rows, {raw / 2**20:.0f} MiB, made in {time.monotonic() - began:.0f} s", flush=True)
        first = rolled_up(Path(place))
        cost = f"{first['seconds']} s, {first['cpu_seconds']} s of processors, {first['peak_mb']} MiB at most"
        print(f"rolled up to four levels: {cost}", flush=True)
        print("\n".join(first["said"]))
        again = rolled_up(Path(place))
        print(f"again, nothing new: {again['seconds']} s")
        times = read(folder, total, counted)
        for name, ms in times.items():
            print(f"read {name}: {ms} ms")
    if options.json:
        result = {"rows": options.rows, "bytes": raw, "roll_up": first, "again": again, "read_ms": times}
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
