"""``docs/development/attacks.md`` and ``docs/explanation/security.md`` name existing tests for each kind of attack."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    lines = (ROOT / "docs" / "development" / "attacks.md").read_text().splitlines()
    return [line for line in lines if line.startswith("| ") and not line.startswith("| class")]


def test_every_class_of_attack_has_a_test() -> None:
    assert len(rows()) >= 24
    assert [row for row in rows() if not TEST.search(row)] == []


def test_every_known_case_has_a_source() -> None:
    text = (ROOT / "docs" / "development" / "attacks.md").read_text()
    page, _, sources = text.partition("## Sources")
    cited = re.findall(r"\[(CVE-\d+-\d+)\]\(https://nvd\.nist\.gov/vuln/detail/\1\)", sources)
    assert sorted(set(re.findall(r"CVE-\d+-\d+", page))) == sorted(cited)


def test_named_tests_exist() -> None:
    named = [found for row in rows() for found in TEST.findall(row)]
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_tests_of_isolation_between_topologies_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "explanation" / "security.md").read_text())
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []
