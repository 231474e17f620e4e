"""Parse ``docs/how-to/cookbook.md`` into recipes: program, commands and expected output.

A recipe is a section with a ``python`` block whose first line names the file, a ``console`` block with the commands,
and a ``text`` block for each output folder. The first line of a ``text`` block gives the total number of lines; the
others are a selection of them.
"""

from __future__ import annotations

import gzip
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heronry.streamlet import Builder

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "how-to" / "cookbook.md"
DATA = ROOT / "examples" / "cookbook" / "data"
FOLDER = ROOT / "examples" / "cookbook"


@dataclass(frozen=True)
class Sample:
    """Lines of a folder below OUTPUT as shown on the page: their number, and some of them."""

    folder: str
    number: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Recipe:
    """Section of the page. ``text``: the program, as shown."""

    file: str
    variable: str
    text: str
    commands: str
    samples: tuple[Sample, ...]

    @property
    def name(self) -> str:
        """Return the test id."""
        return Path(self.file).stem


def recipes(page: str) -> list[Recipe]:
    """Return the recipes of the page. Raises AssertionError with the name of a malformed section."""
    found = []
    for section in page.split("\n## ")[1:]:
        title = section.partition("\n")[0]
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
        if not any(kind == "python" for kind, _ in blocks):
            continue
        program, *others = (text for kind, text in blocks if kind == "python")
        named = re.match(r"# (examples/cookbook/\w+\.py)\n", program)
        assert named, f"{title}: the first line of its program is not `# examples/cookbook/NAME.py`"
        assert not others, f"{title}: more than one program"
        commands = "".join(text for kind, text in blocks if kind == "console")
        submitted = re.search(rf"heron submit local {re.escape(named[1])} (\w+) ", commands)
        assert submitted, f"{title}: no command submits {named[1]}"
        samples = tuple(_sample(title, text) for kind, text in blocks if kind == "text")
        found.append(Recipe(named[1], submitted[1], program[named.end() :], commands, samples))
    return found


def _sample(title: str, text: str) -> Sample:
    head, *lines = text.splitlines()
    said = re.match(r"out/(\w+): (\d+) lines?(, among them| in all)?$", head)
    assert said, f"{title}: {head!r} is not `out/FOLDER: N lines`"
    return Sample(said[1], int(said[2]), tuple(lines))


def drift(recipe: Recipe, root: Path = ROOT) -> str:
    """Return the difference between the shown program and its file; empty if equal."""
    if recipe.text == (root / recipe.file).read_text():
        return ""
    return f"docs/how-to/cookbook.md does not show {recipe.file} as it is"


def mistakes(sample: Sample, lines: list[str]) -> str:
    """Return the errors of the page about a folder with these lines; empty if none."""
    wrong = [line for line in sample.lines if line not in lines]
    if wrong:
        return f"not in {sample.folder}: {wrong[0]}"
    return "" if len(lines) == sample.number else f"{sample.folder} has {len(lines)} lines, not {sample.number}"


def program(recipe: Recipe, output: Path, monkeypatch: pytest.MonkeyPatch, data: Path = DATA) -> Builder:
    """Return the builder of a recipe's file."""
    monkeypatch.setattr("sys.argv", [recipe.file, str(data), str(output)])
    found: Any = runpy.run_path(str(ROOT / recipe.file))[recipe.variable]
    assert isinstance(found, Builder)
    return found


def written(folder: Path) -> list[str]:
    """Return the lines of a sink's files."""
    files: Iterator[Path] = (file for ending in ("json", "csv") for file in sorted(folder.rglob(f"*.{ending}")))
    seen = [file for file in files if not any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)]
    return [line for file in seen for line in file.read_text().splitlines()[file.suffix == ".csv" :]]


def packed_words() -> str:
    """Return the text of the compressed log, for an independent count."""
    return gzip.decompress((DATA / "logs" / "app-1.log.gz").read_bytes()).decode()
