"""Banned phrases in packages whose prose is clean."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLEAN = (  # a package is added once its prose is clean, and stays
    "heron_apiserver", "heron_cli", "heron_container", "heron_instance", "heron_scheduler", "heron_tracker",
    "metrics_manager", "stream_manager", "topology_master",
)  # fmt: skip
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
