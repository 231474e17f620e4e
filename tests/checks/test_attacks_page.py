"""``docs/development/attacks.md`` and ``docs/explanation/security.md`` name existing tests for each kind of attack."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def classes() -> list[str]:
    """Return the text of each class of attack, from its heading to the next one."""
    page, _, _ = (ROOT / "docs" / "development" / "attacks.md").read_text().partition("## Sources")
    return page.split("\n### ")[1:]


def test_every_class_of_attack_has_a_test() -> None:
    assert len(classes()) >= 24
    assert [text for text in classes() if not TEST.search(text)] == []


def test_every_known_case_has_a_source() -> None:
    text = (ROOT / "docs" / "development" / "attacks.md").read_text()
    page, _, sources = text.partition("## Sources")
    cited = re.findall(r"\[(CVE-\d+-\d+)\]\(https://nvd\.nist\.gov/vuln/detail/\1\)", sources)
    assert sorted(set(re.findall(r"CVE-\d+-\d+", page))) == sorted(cited)


def test_named_tests_exist() -> None:
    named = [found for text in classes() for found in TEST.findall(text)]
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text()]
    assert missing == []


def test_tests_of_isolation_between_topologies_exist() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "explanation" / "security.md").read_text())
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []
