"""Findings of ``heron doctor``: the result of one check, and helpers that word it.

The functions ``judge_*`` of this package turn facts into findings and touch nothing else. The functions ``collect_*``
gather the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class CheckStatus(StrEnum):
    """Result of a check: NOTE is for what is optional or could be better, BAD for what is missing."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with a remedy where one is needed."""

    check: str
    verdict: CheckStatus
    found: str
    cure: str = ""


def good(check: str, found: str) -> Finding:
    """Return the finding that nothing is wrong."""
    return Finding(check, CheckStatus.GOOD, found)


def note(check: str, found: str, cure: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(check, CheckStatus.NOTE, found, cure)


def bad(check: str, found: str, cure: str) -> Finding:
    """Return the finding that something is missing or broken."""
    return Finding(check, CheckStatus.BAD, found, cure)


def optional(finding: Finding, user: str) -> Finding:
    """Return the finding as a note if it is bad, since only `user` needs what is missing."""
    if finding.verdict is not CheckStatus.BAD:
        return finding
    return replace(finding, verdict=CheckStatus.NOTE, cure=f"Only {user} needs it: {finding.cure}")


def missing(findings: Iterable[Finding]) -> list[str]:
    """Return the names of the bad checks, without repetition."""
    return list(dict.fromkeys(finding.check for finding in findings if finding.verdict is CheckStatus.BAD))


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (20, 10, 24) of ``20.10.24+dfsg1``; () if it has none."""
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def cure_for(trouble: str, cures: Mapping[str, str], otherwise: str) -> str:
    """Return the first remedy whose key is part of the error text."""
    return next((cure for sign, cure in cures.items() if sign in trouble.lower()), otherwise)


def shorten(names: Iterable[str], limit: int = 5) -> str:
    """Return the first names and the number of the others."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
