"""History rows of a container: their sums equal the totals across faults of any process."""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heron_runtime.model.history import LEVEL_MS, MetricRow, bucket, date_of, exact, file_name, number_of, roll_up
from heron_runtime.model.sketch import Sketch
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics, TopologyEvent
from heron_runtime.wire.sketch_codec import encode_sketch
from metrics_manager.sinks.history_rows import Files, Growing, beyond

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["report", "write", "disk full", "metrics manager dies", "process dies"]),
        st.integers(0, 2),
        st.floats(0, 1e5),
    ),
    max_size=14,
)


class Told:
    """Counting processes and their reports, with the expected totals."""

    def __init__(self) -> None:
        self.now = 1_764_000_000.0
        self.incarnations: dict[int, int] = defaultdict(lambda: 1)
        self.totals: dict[tuple[int, int], float] = defaultdict(float)
        self.values: dict[tuple[int, int], list[float]] = defaultdict(list)

    def report(self, task: int, growth: float) -> list[ProcessMetrics]:
        """Return the reports of all incarnations of a process after it has counted more."""
        self.now += 3.7
        key = (task, self.incarnations[task])
        self.totals[key] += growth
        self.values[key].append(growth)
        return [self._of(t, i) for t, i in self.totals if t == task and i > self.incarnations[task] - 3]

    def _of(self, task: int, incarnation: int) -> ProcessMetrics:
        values = self.values[task, incarnation]
        error = ExceptionReport("word", f"word_{task}", "ValueError", "bad", "trace", len(values), self.now, self.now)
        return ProcessMetrics(
            "word", f"container_1_word_{task}", 1, task, incarnation,
            self.now if incarnation == self.incarnations[task] else self.now - 0.1,
            {"__busy-time-ms": self.totals[task, incarnation], "__emit-count/default": float(len(values))},
            {"__pending-acked-count": values[-1]},
            {"__complete-latency/default": encode_sketch(Sketch.of(values))}, (error,), float(incarnation),
            tuple(
                TopologyEvent(self.now, "pressure", "", 1, f"{task}/{incarnation}/{n}", "") for n in range(len(values))
            ),
            len(values),
        )  # fmt: skip


@given(STEPS)
def test_sums_of_rows_equal_the_totals_across_faults(steps: list[tuple[str, int, float]]) -> None:
    told, growing, saved, written = Told(), Growing(max_rows=12), (), []
    exceptions, happened = 0, list[str]()
    latest: dict[int, list[ProcessMetrics]] = {}
    for step, task, growth in [*steps, ("report", 0, 1.0), ("write", 0, 0.0)]:
        if step == "report":
            latest[task] = told.report(task, growth)
            growing.take(latest[task])
        elif step == "process dies":
            told.incarnations[task] += 1
        elif step == "metrics manager dies":
            growing = Growing(saved, max_rows=12)
            for reports in latest.values():  # it has the saved reports, and receives the others
                growing.take(reports)
        else:
            rows, news = growing.take_rows()
            if step == "disk full":
                growing.put_back(rows, news)
            else:
                written += rows
                exceptions += sum(event.count for event in news if event.kind == "exception")
                happened += [event.text for event in news if event.kind == "pressure"]
                saved = growing.baseline()
        growing.check()
    sums: dict[tuple[str, str], float] = defaultdict(float)
    sketches: dict[str, Sketch] = defaultdict(Sketch)
    for row in written:
        sums[row.instance, row.metric] += row.sum if row.kind == "counter" else 0.0
        sketches[row.instance] += Sketch(row.bins)
    for task in {task for task, _ in told.totals}:
        name = f"container_1_word_{task}"
        ours = [key for key in told.totals if key[0] == task]
        assert sums[name, "__busy-time-ms"] == sum(exact(told.totals[key]) for key in ours)
        values = [value for key in ours for value in told.values[key]]
        assert sums[name, "__emit-count/default"] == len(values)
        assert sketches[name] == Sketch.of(values)
    assert exceptions == sum(map(len, told.values.values()))
    assert sorted(happened) == sorted(
        f"{t}/{i}/{n}" for (t, i), found in told.values.items() for n in range(len(found))
    )


ROWS = st.builds(
    MetricRow, st.integers(0, 40).map(lambda n: 1_764_000_000_000 + n * 10_000), st.just(1), st.just("word"),
    st.sampled_from(["a", "b"]), st.just("m"), st.just("gauge"), st.integers(1, 5).map(float),
    st.floats(0, 1e6).map(exact), st.floats(0, 9), st.floats(0, 9), st.floats(0, 9), st.integers(0, 9),
    st.dictionaries(st.integers(-5, 5), st.integers(1, 9).map(float)),
)  # fmt: skip


@given(st.lists(ROWS, max_size=12), st.integers(0, 12), st.randoms())
def test_roll_up_is_independent_of_order(rows: list[MetricRow], cut: int, random: object) -> None:
    def of(chosen: list[MetricRow], level: str) -> list[MetricRow]:
        return roll_up([dataclasses.replace(row, bins=dict(row.bins)) for row in chosen], level)

    once = of(rows, "1h")
    assert of(of(of(rows[cut:], "1m") + of(rows[:cut], "1m"), "10m"), "1h") == once
    assert of(of(rows[:cut], "1h") + rows[cut:], "1h") == once
    assert sum(row.sum for row in once) == sum(row.sum for row in rows)
    assert all(row.start_ms == bucket(row.start_ms, "1h") for row in once)


@given(st.lists(st.floats(0.001, 1e4), min_size=1, max_size=60), st.integers(1, 6))
def test_percentiles_of_merged_sketches_cover_all_values(values: list[float], parts: int) -> None:
    rows = [
        MetricRow(0, 1, "word", "a", "m", "latency", bins=dict(Sketch.of(values[n::parts]).bins)) for n in range(parts)
    ]  # fmt: skip
    (merged,) = roll_up(rows, "1d")
    ordered = sorted(values)
    for q in (0.0, 0.5, 0.9, 0.99, 1.0):
        truth = ordered[int(q * (len(values) - 1))]
        assert Sketch(merged.bins).quantile(q) == pytest.approx(truth, rel=0.0101)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 30)), max_size=12), st.integers(0, 300))
def test_kept_files_are_the_newest_within_the_bound(found: list[tuple[int, int]], most: int) -> None:
    files = [(f"{n}", size, date_of(age * LEVEL_MS["1d"])) for n, (age, size) in enumerate(sorted(found))]
    gone = set(beyond(files, most, date_of(50 * LEVEL_MS["1d"])))
    kept = [file for file in files if file[0] not in gone]
    assert kept == files[len(gone) :], "the oldest go"
    assert len(kept) >= min(1, len(files)), "the newest stays"
    assert len(kept) <= 1 or sum(size for _, size, _ in kept) <= most
    assert len(kept) <= 1 or kept[0][2] >= date_of(50 * LEVEL_MS["1d"])


def test_file_intervals_grow_to_their_maximum() -> None:
    files, due = Files(60.0, 0.0), []
    for now in range(400):
        if files.due(float(now)):
            due.append(now)
    assert due == [10, 30, 70, 130, 190, 250, 310, 370]


def test_file_names_are_parsed() -> None:
    assert number_of(file_name(3, 17), 3) == 17
    assert number_of(file_name(31, 17), 3) is None
    assert number_of("c3-x.parquet", 3) is None
