"""Lookup of a topology by variable or builder name, and files inside a package."""

from __future__ import annotations

from pathlib import Path

import pytest

from heron_control.packaging.definition import define_topology
from heronry.api.errors import TopologyError, TopologyNotFound

PROGRAMS = """
from heronry.streamlet import Builder, collect, sequence

def program(name):
    builder = Builder(name)
    builder.source(sequence(3)).sink(collect())
    return builder

first, second = program("text-words"), program("text-lines")
third = program("same")
fourth = program("same")
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_builder_is_found_by_its_name(tmp_path: Path) -> None:
    file = write(tmp_path / "programs.py", PROGRAMS)
    for name in ("second", "text-lines", "programs:text-lines"):
        definition = define_topology(file, name)
        assert definition.name == "text-lines"
        assert definition.components[0].config["user.streamlet.program"] == "programs:second"
    with pytest.raises(TopologyNotFound, match=r"did you mean 'text-words'\?"):
        define_topology(file, "text-word")
    with pytest.raises(TopologyNotFound, match="several builders named 'same'; name one: 'third', 'fourth'"):
        define_topology(file, "same")
    write(tmp_path / "folder" / "programs.py", PROGRAMS)
    assert define_topology(tmp_path / "folder", "text-lines").name == "text-lines"


@pytest.mark.parametrize("line", ["from . import parts", "from outer.inner import parts", "import parts"])
def test_file_inside_a_package_is_rejected_with_the_package_name(tmp_path: Path, line: str) -> None:
    for part in ("outer/__init__.py", "outer/inner/__init__.py", "outer/inner/parts.py"):
        write(tmp_path / part, "")
    file = write(tmp_path / "outer/inner/words.py", f"{line}\n{PROGRAMS}")
    with pytest.raises(TopologyError, match=rf"package outer; .* FILE {tmp_path}/outer, then outer\.inner\.words:NAME"):
        define_topology(file, "first")
    if line != "import parts":  # not an import from the package
        assert define_topology(tmp_path / "outer", "outer.inner.words:first").name == "text-words"
