"""Lines of documentation end at 100 characters, except in tables, headings and code.

Paragraphs and list items have at most five lines, and cells of tables 120 characters.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_pages_are_wrapped() -> None:
    tool = runpy.run_path(str(ROOT / "docs" / "wrap.py"))
    long = {
        f"{page.relative_to(ROOT)}: {line[:60]}…" for page in PAGES for line in tool["long_lines"](page.read_text())
    }
    assert sorted(long) == [], "wrap them: python docs/wrap.py FILE"


def paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph and list item of a page, without its front matter."""
    body = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.DOTALL | re.MULTILINE)
    blocks = runpy.run_path(str(ROOT / "docs" / "wrap.py"))["blocks"]
    yield from (block for block, is_prose in blocks(body) if is_prose)


def cells(text: str) -> Iterator[str]:
    """Yield the cells of the tables of a page as a reader sees them: a link is its text."""
    for line in text.splitlines():
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
                yield re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", cell.strip())


def test_paragraphs_are_short() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {block[0]}"
        for page in PAGES
        for block in paragraphs(page.read_text())
        if len(block) > 5
    ]
    assert sorted(long) == []


def test_cells_of_tables_are_short() -> None:
    long = [
        f"{page.relative_to(ROOT)}: {cell}" for page in PAGES for cell in cells(page.read_text()) if len(cell) > 120
    ]
    assert sorted(long) == []


def test_wrapping_keeps_lists_tables_and_code() -> None:
    wrap = runpy.run_path(str(ROOT / "docs" / "wrap.py"))["wrap"]
    words = " ".join(["heron"] * 30)
    kept = f"| {words} | {words} |\n\n```text\n{words}\n```\n\n    {words}\n\n# {words}\n"
    assert wrap(kept) == kept
    wrapped = wrap(f"* {words}\n* b\n")
    assert all(len(line) <= 100 for line in wrapped.split("\n"))
    assert [line[:2] for line in wrapped.split("\n")] == ["* ", "  ", "* ", ""]
    assert wrap(wrapped) == wrapped
