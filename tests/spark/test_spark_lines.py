"""SQL over text splits lines as Python does, for arbitrary bytes, and adds numbers as Python does."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from data_pipeline.core.planner import plan
from heronry.streamlet import Builder, collect, files, mean, sum_
from heronry.streamlet.reference import run
from tests.support.streamlets.spark_engine import run_all

# Bytes at which the rules of UTF-8 change.
EDGES = bytes.fromhex("0a 0d 41 7f 80 85 8f 90 9f a0 a8 bf c0 c1 c2 df e0 e1 e2 ec ed ee ef f0 f1 f3 f4 f5 ff")


def test_lines_of_arbitrary_bytes(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    lines = [bytes(made) for size in (1, 2, 3) for made in itertools.product(EDGES, repeat=size)]
    lines += [bytes(chance.choices(EDGES, k=chance.randrange(4, 12))) for _ in range(30_000)]
    lines += ["x\r\u2028".encode(), "x\u2028\r".encode(), b"x\r\r", b"x\r\xc2\x85"]
    lines += ["ж".encode() * 100_000 + b"\xff", b"\xf0\x9f\x98" * 50_000]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    builder = Builder("lines")
    builder.source(files(tmp_path, "text")).key_by().count_by_key().sink(collect(), name="out")
    program = builder.build()
    assert [reduction.sql for reduction in plan(program).reductions] == [True]
    (found,) = run_all(spark, [program])
    assert dict(found["out"]) == dict(run(program)["out"])


def test_zeros_keep_their_sign_in_a_sum(spark: SparkSession, tmp_path: Path) -> None:
    rows = ["a,-0.0", "b,-0.0", "b,0.0", "c,-0.0", "c,-0.0", "c,", "d,", "e,1.5", "e,-1.5", "f,-0.0", "f,-2.0", "g,0"]
    (tmp_path / "rows.csv").write_text("\n".join(["k,x", *rows]))
    builder = Builder("zeros")
    keyed = builder.source(files(tmp_path, "csv", schema={"k": "str", "x": "float"})).key_by("k")
    for monoid in (sum_(), mean()):
        keyed.reduce_by_key(monoid, "x").sink(collect(), name=monoid.builtin)
    program = builder.build()
    (found,) = run_all(spark, [program])

    def shown(records: list[Any]) -> list[str]:
        return sorted(map(repr, records))  # distinguishes -0.0 from 0.0

    for sink, expected in run(program).items():
        assert shown(found[sink]) == shown(expected), sink
