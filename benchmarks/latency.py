"""Latencies of all tasks in one HdrHistogram: microseconds, three significant digits."""

from __future__ import annotations

import array
from pathlib import Path

from hdrh.histogram import HdrHistogram

LONGEST_US = 600_000_000
PERCENTILES = (("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9))


def percentiles(folder: Path, name: str) -> dict[str, float]:
    """Return milliseconds at each percentile over the files ``name-*``, which hold seconds; empty without files."""
    histogram = HdrHistogram(1, LONGEST_US, 3)
    for file in folder.glob(f"{name}-*"):
        seconds = array.array("d")
        seconds.frombytes(file.read_bytes())
        for value in seconds:
            histogram.record_value(max(1, min(LONGEST_US, int(value * 1e6))))
    if not histogram.get_total_count():
        return {}
    return {key: round(histogram.get_value_at_percentile(at) / 1000, 2) for key, at in PERCENTILES}
