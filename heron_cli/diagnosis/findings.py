"""What ``heron doctor`` says: one finding for each thing that it looked at.

The modules ``judge_*`` make findings of facts and touch nothing; the modules ``look_*`` gather the facts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Health(StrEnum):
    """What one check says of this machine. A NOTE is about something that can be done without, or could be better; what
    is BAD is missing."""

    GOOD = "good"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and the cure if there is need of one."""

    check: str
    verdict: Health
    found: str
    cure: str = ""


def good(check: str, found: str) -> Finding:
    """It is as it should be."""
    return Finding(check, Health.GOOD, found)


def note(check: str, found: str, cure: str) -> Finding:
    """It can be lived with."""
    return Finding(check, Health.NOTE, found, cure)


def bad(check: str, found: str, cure: str) -> Finding:
    """It is missing."""
    return Finding(check, Health.BAD, found, cure)


def optional(finding: Finding, who: str) -> Finding:
    """The finding where only ``who`` needs it: nothing is missing then."""
    if finding.verdict is not Health.BAD:
        return finding
    return replace(finding, verdict=Health.NOTE, cure=f"Only {who} needs it: {finding.cure}")


def missing(findings: Iterable[Finding]) -> list[str]:
    """The names of the checks that are bad, each once."""
    return list(dict.fromkeys(finding.check for finding in findings if finding.verdict is Health.BAD))


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, as (20, 10, 24) of ``20.10.24+dfsg1``; () if it has none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def cure_for(trouble: str, cures: Mapping[str, str], otherwise: str) -> str:
    """The cure whose sign stands in what was said."""
    return next((cure for sign, cure in cures.items() if sign in trouble.lower()), otherwise)


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few of them, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
