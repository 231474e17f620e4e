"""Lines of documentation end at 100 characters, except in tables, headings and code."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_pages_are_wrapped() -> None:
    tool = runpy.run_path(str(ROOT / "docs" / "wrap.py"))
    long = {
        f"{page.relative_to(ROOT)}: {line[:60]}…" for page in PAGES for line in tool["long_lines"](page.read_text())
    }
    assert sorted(long) == [], "wrap them: python docs/wrap.py FILE"


def test_wrapping_keeps_lists_tables_and_code() -> None:
    wrap = runpy.run_path(str(ROOT / "docs" / "wrap.py"))["wrap"]
    words = " ".join(["heron"] * 30)
    kept = f"| {words} | {words} |\n\n```text\n{words}\n```\n\n    {words}\n\n# {words}\n"
    assert wrap(kept) == kept
    wrapped = wrap(f"* {words}\n* b\n")
    assert all(len(line) <= 100 for line in wrapped.split("\n"))
    assert [line[:2] for line in wrapped.split("\n")] == ["* ", "  ", "* ", ""]
    assert wrap(wrapped) == wrapped
