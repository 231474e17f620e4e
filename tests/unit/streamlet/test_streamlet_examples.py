"""Examples of sessions, joins and process, online and by the reference."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from heronry.streamlet.reference import run
from heronry.streamlet.results import read
from tests.support.streamlets.comparison import difference
from tests.support.streamlets.online_engine import run_online

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
