"""Phrases that plain technical English does without, in packages whose prose is clean and in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAN = (  # a package joins when it is clean, and stays
    "heron_apiserver", "heron_cli", "heron_container", "heron_instance", "heron_scheduler", "heron_tracker",
    "metrics_manager", "stream_manager", "topology_master",
)  # fmt: skip
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$|`[^`]+`", re.DOTALL | re.MULTILINE)
BANNED = re.compile(
    r"\b(is|are) no (?!longer\b)|\b([Nn]obody|[Ww]hoever|[Ss]omebody|[Ee]verybody|anew|for ever|all the same)\b|, too\b"
    r'|"""(What|Who|How|Whether|That|Of)\b',
)

DATA = {  # values of a file format
    'self.name, who=str(caller or "nobody"), source=client_address(request), result=code, topology=topology,',
}


def test_no_banned_phrase_in_clean_packages() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]}"
        for package in CLEAN
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := BANNED.search(line)) and line.strip() not in DATA
    ]
    assert hits == []


def test_no_banned_phrase_in_documentation() -> None:
    hits = [
        f"{page.relative_to(ROOT)}: {match[0]}"
        for page in PAGES
        for match in BANNED.finditer(CODE.sub("", page.read_text()))
    ]
    assert sorted(hits) == []
