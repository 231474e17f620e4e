"""Wrap long lines of Markdown at 100 characters: ``python docs/wrap.py FILE...``.

Only blocks with a line that is too long are changed. Tables, headings and code stay as they are.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 100
_ITEM = re.compile(r"(\s*)([-*+]|\d+[.)])(\s+)")
_MARKER_AT_LINE_START = re.compile(r" (?=(?:[-+*#|>=]|\d+[.)])(?: |$))")
_GLUE = "\0"


def wrap(text: str) -> str:
    """Return ``text`` with its paragraphs and list items wrapped."""
    return "\n".join(line for block in blocks(text) for line in _wrapped(*block))


def long_lines(text: str) -> list[str]:
    """Return the lines outside tables, headings and code that are too long and can be broken."""
    wanted = (block for block, is_prose in blocks(text) if is_prose)
    return [line for block in wanted for line in block if len(line) > WIDTH and " " in line.strip()[:WIDTH]]


def blocks(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield runs of lines, and whether each is prose (a paragraph or one list item)."""
    block: list[str] = []
    fence, in_list, after_blank = "", False, True
    for line in text.split("\n"):
        opening = re.match(r"\s*(`{3,}|~{3,})", line)
        is_code = bool(fence) or bool(opening) or (after_blank and not in_list and line.startswith("    "))
        if opening:
            fence = "" if fence and opening[1].startswith(fence) else fence or opening[1]
        is_item = bool(_ITEM.match(line))
        is_fixed = is_code or not line.strip() or line.lstrip().startswith(("|", "#", "!!!", "???", ":::", "<"))
        if block and (is_fixed or is_item):
            yield block, True
            block = []
        if is_fixed:
            yield [line], False
            if line.strip() and not line.startswith(" ") and not is_code:
                in_list = False
        else:
            in_list = is_item or (in_list and (line.startswith(" ") or not after_blank))
            block.append(line)
        after_blank = not line.strip() or (is_code and after_blank and not fence)
    if block:
        yield block, True


def _wrapped(block: list[str], is_prose: bool) -> list[str]:
    if not is_prose or all(len(line) <= WIDTH for line in block):
        return block
    item = _ITEM.match(block[0])
    first = item[0] if item else _indent(block[0])
    rest = _indent(block[1]) if item and len(block) > 1 else " " * len(first)
    joined = " ".join([block[0][len(first) :].rstrip(), *(line.strip() for line in block[1:])])
    glued = _MARKER_AT_LINE_START.sub(_GLUE, joined)
    lines = textwrap.wrap(
        glued, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        Path(name).write_text(wrap(Path(name).read_text()))
