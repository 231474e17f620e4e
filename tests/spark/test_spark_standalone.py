"""A real standalone cluster: master and worker as processes, code shipped to executors."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.servers.spark import Standalone, run_heron

PROGRAM = """
import os
from heronry.streamlet import Builder, files, sequence, to_files
from shapes.area import area

def place(number):
    return {"executor": os.environ.get("SPARK_EXECUTOR_DIRS", ""), "area": area(number), "parity": number % 2}

squares = Builder("squares")
placed = squares.source(sequence(1_000)).map(place)
placed.key_by("parity").sum_by_key("area").sink(to_files("/nowhere"), name="sums")
placed.map(lambda record: record["executor"]).key_by().count_by_key().sink(to_files("/nowhere"), name="executors")
"""


def test_package_runs_on_executors_without_its_code(standalone: Standalone, tmp_path: Path) -> None:
    package = tmp_path / "shapes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "area.py").write_text("def area(side):\n    return side * side\n")
    (package / "program.py").write_text(PROGRAM)
    out = tmp_path / "out"
    done = run_heron(
        tmp_path, "submit", "spark", str(package), "shapes.program:squares", "--output-path", str(out),
        "--master", standalone.url, "--conf", "spark.executor.memory=512m",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    sums = [json.loads(line) for part in (out / "sums").glob("*.json") for line in part.read_text().splitlines()]
    expected = {parity: sum(n * n for n in range(parity, 1_000, 2)) for parity in (0, 1)}
    assert {record["key"]: record["value"] for record in sums} == expected
    ran = [json.loads(line) for part in (out / "executors").glob("*.json") for line in part.read_text().splitlines()]
    assert sum(record["value"] for record in ran) == 1_000
    assert all(record["key"] for record in ran), "a task ran outside an executor of the cluster"
    assert list((standalone.folder / "work").glob("app-*/*/stderr"))
