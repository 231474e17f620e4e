"""Paths of documentation in code, messages and pages exist, or are pages that the site generates.

Source files that pages name exist. Links to a heading of a page lead to a heading that exists.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = re.compile(r'"(reference/[\w-]+\.md)":')
NAMED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
SOURCES = re.compile(
    r"`((?:[a-z]+_[a-z]+|heronry|tests|benchmarks|examples|deploy)/[\w./-]+\.(?:py|yml|sh|toml|json))`"
)
HEADING = re.compile(r"^#+ (.+?)(?: *\{ *#([\w-]+) *\})?$", re.MULTILINE)
ANCHORED = re.compile(r"\]\(([^()\s:#]*)#([^()\s]+)\)")


def test_documentation_paths_in_the_repository_exist() -> None:
    generated = {f"docs/{name}" for name in GENERATED.findall((ROOT / "docs" / "generate.py").read_text())}
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    texts = [ROOT / name for name in listed if name and not name.endswith((".svg", ".png", ".gz", ".parquet"))]
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        if path.is_file()
        for name in NAMED.findall(path.read_text(errors="replace"))
        if name not in generated and not (ROOT / name).is_file()
    }
    assert sorted(missing) == []


def test_every_source_file_that_a_page_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in SOURCES.findall(FENCED.sub("", page.read_text()))
        if not (ROOT / name).is_file()
    }
    assert sorted(missing) == []


def anchors(text: str) -> set[str]:
    """Return the anchors that Python-Markdown gives to the headings of a page."""
    found: set[str] = set()
    for heading, explicit in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).encode("ascii", "ignore").decode()
        slug = explicit or re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        number = next(n for n in range(1000) if (f"{slug}_{n}" if n else slug) not in found)
        found.add(f"{slug}_{number}" if number else slug)
    return found


def test_links_to_headings_lead_to_headings() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {page: page.read_text() for page in pages}
    dead = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page, text in texts.items()
        for target, anchor in ANCHORED.findall(FENCED.sub("", text))
        if (there := (page.parent / target).resolve() if target else page) in texts
        and anchor not in anchors(texts[there])
    ]
    assert dead == []


def test_anchors_of_headings() -> None:
    text = "# A `b`, c\n\n## Twice\n## Twice\n## Own {#mine}\n```\n# code\n```\n## What is [x](y.md)?\n"
    assert anchors(text) == {"a-b-c", "twice", "twice_1", "mine", "what-is-x"}
