"""Cookbook and examples: pages show the programs and their real output, online and by the reference."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronry.pipeline.views import open_view
from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.cookbook import (
    DATA,
    FOLDER,
    PAGE,
    Recipe,
    drift,
    mistakes,
    packed_words,
    program,
    recipes,
    written,
)
from tests.support.streamlets.online_engine import OnlineEngine, definition_of, importable, letters_in, run_online

RECIPES = recipes(PAGE.read_text())
ENDLESS = ("live_view",)
of_each = pytest.mark.parametrize("recipe", RECIPES, ids=[recipe.name for recipe in RECIPES])


def plain(record: Any) -> Any:
    """Convert a record to its form in a file: lists for tuples, text for times."""
    return json.loads(json.dumps(record, default=lambda time: time.isoformat().replace("+00:00", "Z")))


def named(name: str) -> Recipe:
    (found,) = [recipe for recipe in RECIPES if recipe.name == name]
    return found


def test_page_contains_every_program_of_the_folder_once() -> None:
    files = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem != "__init__")
    assert sorted(recipe.name for recipe in RECIPES) == files
    assert len(files) >= 10


@of_each
def test_page_shows_the_file(recipe: Recipe) -> None:
    assert drift(recipe) == ""
    assert f"heron submit spark {recipe.file} {recipe.variable} " in recipe.commands
    assert recipe.samples or recipe.name in ENDLESS


@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.name not in ENDLESS], ids=lambda recipe: recipe.name)
def test_recipe_gives_the_documented_output_online(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = program(recipe, tmp_path, monkeypatch)
    builder.set_config({"user.streamlet.folder": str(tmp_path / "own")})
    built = builder.build()
    aside: list[dict[str, Any]] = []
    expected = run(built, failed=aside)
    run_online(builder, tmp_path)
    for sample in recipe.samples:
        lines = written(tmp_path / sample.folder)
        assert mistakes(sample, lines) == ""
    for step in built.sinks():
        folder = Path(step.sink.path)
        if recipe.name == "once":
            assert len(written(folder)) == len(expected[step.name]) > 0
        else:
            assert expected[step.name] or step.name == "late_out"
            assert difference(map(plain, read(folder)), map(plain, expected[step.name])) == ""
    assert sorted(letter["error"] for letter in letters_in(tmp_path / "own")) == sorted(
        letter["error"] for letter in aside
    )
    assert len(aside) == (3 if recipe.name == "readings" else 0)


def test_word_count_equals_a_plain_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = packed_words() + (DATA / "logs" / "app-2.log").read_text()
    truth = Counter(re.findall("[a-z]+", " ".join(re.findall(" ERROR (.*)", log))))
    assert dict(run(program(named("word_count"), tmp_path, monkeypatch).build())["words_out"]) == truth


def test_view_can_be_queried_while_it_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    shutil.copytree(DATA, data)
    builder = program(named("live_view"), tmp_path, monkeypatch, data)
    with importable(builder):
        world = OnlineEngine(definition_of(builder), tmp_path, 1)

        def totals() -> dict[Any, Any]:
            world.run_on(10)
            return dict(open_view(tmp_path / "pages").totals())

        first = totals()
        assert first == dict(run(builder.build())["pages_view"])
        new = {"time": "2026-03-02T13:00:00Z", "user": "ann", "page": "/cart"}
        (data / "views" / "more.jsonl").write_text(json.dumps(new) + "\n")
        assert totals() == {**first, "/cart": first["/cart"] + 1}
        world.stop()


EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    ("example", "variable", "out"),
    [
        ("streamlet_sessions", "visits", "visits"),
        ("streamlet_joins", "ads", "clicked"),
        ("streamlet_process", "alarms", "silent"),
    ],
)
def test_example_online_equals_the_reference(
    example: str, variable: str, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [example, str(tmp_path), "3000"])
    builder = runpy.run_path(str(EXAMPLES / f"{example}.py"))[variable]
    expected = run(builder.build())
    run_online(builder, tmp_path)
    found = max(expected.values(), key=len)
    assert len(found) >= 50
    assert difference(read(tmp_path / out), found) == ""
    assert read(tmp_path / "late") == []


@pytest.mark.parametrize("program", ["events", "shop"])
def test_programs_of_the_semantics_page_run(program: str) -> None:
    page = (EXAMPLES.parent / "docs" / "reference" / "streamlet-semantics.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (text,) = [block for block in blocks if f'Builder("{program}")' in block]
    exec(compile(text, "docs/reference/streamlet-semantics.md", "exec", dont_inherit=True), {})
