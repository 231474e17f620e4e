"""Headings of the page on error messages quote texts that the product, Python or the system prints."""

from __future__ import annotations

import ast
import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "error-messages.md"
VARIABLE = re.compile(r"…|'[^']*'|\b\d[\d,]*\b|\([a-z]+\)|\n")
PRODUCT_FILES = re.compile(r"^(?!tests/|benchmarks/|docs/|examples/).*(?<!_pb2)\.py$")
OF_PYTHON = ("ModuleNotFoundError", "No module named", "Can't pickle")


def printed_texts() -> str:
    """Return all string literals of the product, one below the other; an expression in an f-string is ``…``."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = [os.strerror(code) for code in errno.errorcode]
    for name in filter(PRODUCT_FILES.match, listed.split("\n")):
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            elif isinstance(node, ast.ClassDef):
                texts.append(node.name)
    return "\n".join(texts)


def quoted_fragments(page: str) -> list[str]:
    """Return the literal parts, of more than three letters, of the messages that the headings of ``page`` quote."""
    headings = "\n".join(line for line in page.splitlines() if line.startswith("### "))
    parts = (part.strip(" .,;:") for text in re.findall(r"`([^`]+)`", headings) for part in VARIABLE.split(text))
    return [part for part in parts if len(part) > 3]


def missing_fragments(page: str) -> list[str]:
    texts = printed_texts()
    return [
        fragment
        for fragment in quoted_fragments(page)
        if not all(part in texts or part in OF_PYTHON for part in fragment.split(": "))
    ]


def test_every_quoted_message_is_a_text_of_the_product_python_or_the_system() -> None:
    page = PAGE.read_text()
    assert len(quoted_fragments(page)) > 25
    assert missing_fragments(page) == []


@pytest.mark.parametrize("heading", ["### `topology 'Hello' exists twice`", "### `cannot hear on …: Address in use`"])
def test_a_message_that_nothing_prints_is_noticed(heading: str) -> None:
    assert missing_fragments(heading) != []
