"""Backfill of a part of a view: the result equals a whole batch, and unsafe backfills are rejected."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request
from data_pipeline.shell.resolved_request import resolve_request
from heron_runtime.failures import UsageError
from heronry.pipeline.views import open_view
from heronry.streamlet import Builder, files, mean, top_k, tumbling, view
from heronry.streamlet.program import Program
from heronry.streamlet.stream import Streamlet

BUCKET, SECOND = 10, 1000


class World:
    """Files of records by day, and a program with two views of them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.rng = spark, folder, random.Random(3)
        (folder / "in").mkdir()

    def arrive(self, first: int, last: int, number: int = 40) -> None:
        """Write records with event times in [first, last) seconds."""
        records = [
            {"at": self.rng.randrange(first, last), "key": self.rng.choice("abcd"), "n": self.rng.randrange(100)}
            for _ in range(number)
        ]
        name = f"{self.rng.randrange(10**6)}.json"
        (self.folder / "in" / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    def program(
        self, place: str, bucket: float = BUCKET, before: Callable[[Streamlet], Streamlet] = lambda s: s
    ) -> Program:
        builder = Builder("backfilled")
        source = builder.source(files(self.folder / "in", "json"), event_time="at", name="records")
        keyed = before(source).filter(lambda record: record["n"] != 50).key_by("key")
        path = self.folder / place
        keyed.reduce_by_key(mean(), "n", name="means").sink(view("means", path / "means", bucket=bucket))
        keyed.reduce_by_key(top_k(2), "n", name="tops").sink(view("tops", path / "tops", bucket=2 * bucket))
        return builder.build()

    def batch(self, place: str, to: int, from_: int | str | None = None, program: Program | None = None) -> str:
        """Run a batch; times are in seconds."""
        last = from_ == "last"
        request = Request(
            Path("p.py"), views=True, from_ms=from_ * SECOND if isinstance(from_, int) else None,
            to_ms=to * SECOND, since_last=last,
        )  # fmt: skip
        found = resolve_request(request, Loaded(program or self.program(place), ()))
        return compute_result(self.spark, found, io.StringIO())

    def rows(self, place: str) -> dict[str, Any]:
        """Return every bucket of both views, and their T."""
        found = {name: open_view(self.folder / place / name) for name in ("means", "tops")}
        return {name: (each.to_ms, {(b.key, b.start): b.value for b in each.buckets()}) for name, each in found.items()}

    def truth(self, to: int) -> dict[str, Any]:
        """Return the same, computed from all records."""
        records = [
            json.loads(line) for file in (self.folder / "in").iterdir() for line in file.read_text().splitlines()
        ]
        found: dict[str, Any] = {}
        for name, bucket in (("means", BUCKET), ("tops", 2 * BUCKET)):
            values: dict[tuple[str, int], list[int]] = {}
            for record in records:
                start = record["at"] - record["at"] % bucket
                if record["n"] != 50 and start + bucket <= to:
                    values.setdefault((record["key"], start * SECOND), []).append(record["n"])
            finish = _mean if name == "means" else _top
            found[name] = to * SECOND, {place: finish(these) for place, these in values.items()}
        return found


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _top(values: list[int]) -> Any:
    return tuple(sorted(values, reverse=True)[:2])


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HERONRY_HOME", str(tmp_path / "home"))
    return World(spark, tmp_path)


def test_backfill_of_new_and_corrected_days_equals_a_whole_batch(world: World) -> None:
    world.arrive(0, 100)
    world.batch("parts", 100)
    world.arrive(100, 200)
    said = world.batch("parts", 195, from_="last")
    assert (
        "version 000002, the batch owns buckets up to 1970-01-01T00:03:15Z; recomputed from 1970-01-01T00:01:40Z"
        in said
    )
    assert world.rows("parts") == world.truth(195)
    world.arrive(40, 60)  # the missing records
    world.batch("parts", 60, from_=40)
    assert world.rows("parts") == world.truth(195), "T is what it was"
    manifest = open_view(world.folder / "parts" / "means").batch
    assert manifest is not None
    assert manifest.manifest["backfill"] == {"version": 2, "from_ms": 40_000, "to_ms": 60_000}
    world.batch("parts", 215, from_="last")  # also completes the buckets that T had cut
    assert world.rows("parts") == world.truth(215)


def windowed(stream: Streamlet) -> Streamlet:
    counted = stream.key_by("key").window(tumbling(10)).count_by_key(name="first")
    return counted.map(lambda window: {"key": window.key, "n": window.value})


REFUSED: list[tuple[int, int, dict[str, Any], str]] = [
    (100, 100, {}, "is not before T"),
    (190, 120, {}, "owns its buckets up to 1970-01-01T00:01:40Z; a part that begins at 1970-01-01T00:02:00Z"),
    (100, 45, {}, "is inside a bucket of view means"),
    (100, 50, {}, "is inside a bucket of view tops"),
    (100, 40, {"bucket": 20}, "buckets of 10000 ms by 'mean'.*some of 20000 ms"),
    (100, 40, {"before": windowed}, "step 'first', upstream of the view, depends on earlier input"),
]


def test_backfill_that_would_differ_from_a_whole_batch_is_rejected(world: World) -> None:
    world.arrive(0, 100)
    with pytest.raises(UsageError, match="has no earlier batch"):
        world.batch("parts", 100, from_=40)
    world.batch("parts", 100)
    for to, from_, change, said in REFUSED:
        with pytest.raises(UsageError, match=said):
            world.batch("parts", to, from_, world.program("parts", **change))
    assert world.rows("parts") == world.truth(100)
