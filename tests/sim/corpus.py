"""Corpus of seeds that once broke an invariant or reached states that no other seed reached.

``corpus.txt`` holds the former, ``states.txt`` the latter. Every test run replays both in addition to its other seeds.
For the states (``schedule.SOMETIMES``), it counts which have occurred together in one schedule: a seed is kept if it
has one or two of them that no kept seed has had. There are some 150 such combinations, so the file stays small, and its
seeds reach in ten seconds what takes hundreds of others.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .schedule import failure_text, run
from .simulation import Violation

CORPUS = Path(__file__).with_name("corpus.txt")
STATES = Path(__file__).with_name("states.txt")
TOGETHER = 2


def seeds(file: Path = CORPUS) -> list[int]:
    """Return the kept seeds in the order in which they were added."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def combinations(reached: Iterable[str]) -> set[tuple[str, ...]]:
    """Return each reached state, and each pair of them."""
    ordered = sorted(reached)
    return {found for number in range(1, TOGETHER + 1) for found in itertools.combinations(ordered, number)}


def explore(
    seconds: float, say: Callable[[str], None], first: int | None = None, file: Path = CORPUS, states: Path = STATES
) -> int:
    """Run fresh seeds until the time is over, and keep those that break an invariant or reach something new.

    The seeds start at ``first`` or at a random number. Returns how many broke an invariant.
    """
    seed = random.SystemRandom().randrange(10**6, 10**12) if first is None else first
    known, broken, tried, new = set(seeds(file)), 0, 0, 0
    seen = set().union(*(_reached(kept, say)[0] for kept in seeds(states)))
    ends = time.monotonic() + seconds
    while not tried or time.monotonic() < ends:
        tried += 1
        found, law = _reached(seed, say)
        if law:
            broken += 1
            if seed not in known:
                _keep(file, f"{seed}  {law}")
        elif found - seen:
            new += 1
            latest = max(found - seen, key=lambda names: (-len(names), names))
            _keep(states, f"{seed}  {len(found - seen)} new, as: {'; '.join(latest)}")
            seen |= found
        seed += 1
    say(f"{tried} fresh schedules, the last of seed {seed - 1}; {broken} broke a law, {new} reached something new")
    return broken


def _reached(seed: int, say: Callable[[str], None]) -> tuple[set[tuple[str, ...]], str]:
    """Return the combinations that a schedule reaches, and the first line of the invariant that it breaks."""
    try:
        return combinations(run(seed).reached), ""
    except Violation as violation:
        say(failure_text(seed, violation))
        return set(), violation.law.splitlines()[0]


def _keep(file: Path, line: str) -> None:
    with file.open("a") as kept:
        kept.write(line + "\n")
