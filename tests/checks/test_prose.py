"""Phrases that plain technical English does without: in product code, the page, package READMEs and docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "data_pipeline", "heron_apiserver", "heron_cli", "heron_container", "heron_control", "heron_instance",
    "heron_runtime", "heron_scheduler", "heron_tracker", "heronry", "metrics_manager", "stream_manager",
    "topology_master",
)  # fmt: skip
PHRASES = (
    r"\b([Nn]obody|[Ww]hoever|[Ss]omebody|[Ee]verybody|anew|for ever|all the same)\b|, too(?=\W*$|[.,;:)])"
    r"|\bknows no\b|\bby (hand|itself|himself|themselves)\b|\b[Mm]end(s|ed|ing)?\b|\bgone off\b|\bneedless\b"
)
CODE = re.compile(PHRASES + r'|\b(is|are) no (?!longer\b)|"""(What|Who|How|Whether|That|Of)\b')
DOCS = re.compile(PHRASES + r"|(?<![Tt]here )\b(is|are) no (?!longer\b)")

DATA = {  # values of a file format, names of users
    'self.name, who=str(caller or "nobody"), source=client_address(request), result=code, topology=topology,',
    "heron submit local words.py --config-property heron.user.code.user=nobody",
}


def find_phrases(paths: Iterator[Path], banned: re.Pattern[str]) -> list[str]:
    """Return the lines with a banned phrase, as FILE:LINE: PHRASE."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for path in sorted(paths)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := banned.search(line)) and line.strip() not in DATA
    ]


def test_no_banned_phrase_in_product_code() -> None:
    assert find_phrases((path for name in PACKAGES for path in (ROOT / name).rglob("*.py")), CODE) == []


def test_no_banned_phrase_on_the_page() -> None:
    page = ROOT / "heron_tracker" / "static"
    assert find_phrases((path for path in page.rglob("*") if path.suffix in (".js", ".html")), CODE) == []


def test_no_banned_phrase_in_documentation() -> None:
    own = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    folders = ("tutorials", "how-to", "explanation", "reference", "decisions", "development")
    guides = [path for name in folders for path in (ROOT / "docs" / name).rglob("*.md")]
    readmes = [path for name in PACKAGES if (path := ROOT / name / "README.md").exists()]
    assert find_phrases(iter([*own, *guides, *readmes]), DOCS) == []
