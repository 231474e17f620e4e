"""Programs of ``docs/how-to/cookbook.md`` on Spark: all in one job, except the one with dead letters."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from data_pipeline.shell.job import compute_result
from data_pipeline.shell.program import Loaded
from data_pipeline.shell.request import Request
from data_pipeline.shell.resolved_request import resolve_request
from heronry.streamlet import collect
from heronry.streamlet.program import Program, SinkStep
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.cookbook import PAGE, program, recipes
from tests.support.streamlets.spark_engine import run_all

ASIDE = "readings"


def in_memory(program: Program) -> Program:
    """Return the program with sinks that return records."""
    steps = (replace(step, sink=collect()) if isinstance(step, SinkStep) else step for step in program.steps)
    return replace(program, steps=tuple(steps))


def test_each_recipe_gives_the_same_in_a_batch_as_by_the_reference(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [recipe for recipe in recipes(PAGE.read_text()) if recipe.name != ASIDE]
    programs = [in_memory(program(recipe, tmp_path, monkeypatch).build()) for recipe in shown]
    for recipe, built, found in zip(shown, programs, run_all(spark, programs), strict=True):
        expected: dict[str, list[Any]] = run(built)
        assert any(expected.values()), recipe.name
        for step, records in expected.items():
            assert difference(found[step], records) == "", (recipe.name, step)


def test_invalid_records_become_dead_letters_and_others_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = [recipe for recipe in recipes(PAGE.read_text()) if recipe.name == ASIDE]
    built = program(recipe, tmp_path, monkeypatch).build()
    aside: list[dict[str, Any]] = []
    expected = run(built, failed=aside)
    out, said = tmp_path / "out", io.StringIO()
    compute_result(spark, resolve_request(Request(Path("p.py"), output_path=str(out)), Loaded(built, ())), said)
    letters = [json.loads(line) for line in (out / "_failed.jsonl").read_text().splitlines()]
    assert sorted(letter["error"] for letter in letters) == sorted(letter["error"] for letter in aside)
    assert len(letters) == 3
    assert difference(read(out / "warmest_out"), expected["warmest_out"]) == ""
    (sample,) = [sample for sample in recipe.samples if sample.folder == "typed"]
    assert len(read(out / "typed_out")) == sample.number
