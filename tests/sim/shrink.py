"""Reduction of a failing schedule: fewer faults and messages, as long as the same invariant breaks.

A schedule consists of its seed, its active faults (numbered as they are drawn) and the messages of each spout. An
omission changes what the seed draws afterwards, so each candidate is a separate schedule; it is kept if it breaks the
invariant that the original has broken. Halves are tried first, then quarters, down to single faults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .schedule import Cut, run
from .simulation import Violation

MOST_RUNS = 200
MOST_FAULTS = 256  # more than any schedule draws


@dataclass(frozen=True)
class Small:
    """Reduced schedule, the invariant that it breaks, and how many schedules were run to find it."""

    cut: Cut
    violation: Violation
    runs: int


class Shrinker:
    """Reducer for one seed, whose schedule broke ``law``, regardless of numbers."""

    def __init__(self, seed: int, found: Violation) -> None:
        self._seed = seed
        self._kind = kind_of(found.law)
        self._best = found
        self.runs = 0

    def shrink(self) -> Small:
        """Return the smallest schedule found within ``MOST_RUNS`` runs."""
        cut = Cut(faults=tuple(range(MOST_FAULTS)))
        cut = self._fewer_faults(cut)
        for messages in (1, 2, 3, 5, 10, 20, 40):
            smaller = replace(cut, messages=messages)
            if self._breaks(smaller):
                cut = self._fewer_faults(smaller)
                break
        return Small(cut, self._best, self.runs)

    def _fewer_faults(self, cut: Cut) -> Cut:
        """Omit faults that are not needed, larger pieces first."""
        assert cut.faults is not None
        size = len(cut.faults)
        while size:
            start = 0
            while start < len(cut.faults):
                smaller = replace(cut, faults=cut.faults[:start] + cut.faults[start + size :])
                if self._breaks(smaller):
                    assert smaller.faults is not None
                    cut = smaller
                else:
                    start += size
            size //= 2
        return cut

    def _breaks(self, cut: Cut) -> bool:
        if self.runs >= MOST_RUNS:
            return False
        self.runs += 1
        try:
            run(self._seed, cut=cut)
        except Violation as violation:
            if kind_of(violation.law) == self._kind:
                self._best = violation
                return True
        except (AssertionError, KeyError, ValueError):
            pass  # another fault of the core, not the wanted one
        return False


def kind_of(law: str) -> str:
    """Return the words of an invariant without its numbers and names."""
    return " ".join(word for word in law.split() if word.isalpha())
