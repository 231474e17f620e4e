"""Seeds that once broke a law. They are replayed by every run of the tests, whatever seeds it takes besides."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from .schedule import failure_text, run
from .world import Violation

CORPUS = Path(__file__).with_name("corpus.txt")


def seeds(file: Path = CORPUS) -> list[int]:
    """Those that are kept, in the order in which they were found."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def explore(seconds: float, say: Callable[[str], None], first: int | None = None, file: Path = CORPUS) -> int:
    """Run fresh seeds, from ``first`` on, or from a random one, until the time is over; keep those that break a law.
    Returns how many did."""
    seed = random.SystemRandom().randrange(10**6, 10**12) if first is None else first
    known, broken, tried, ends = set(seeds(file)), 0, 0, time.monotonic() + seconds
    while not tried or time.monotonic() < ends:
        tried += 1
        try:
            run(seed)
        except Violation as violation:
            broken += 1
            say(failure_text(seed, violation))
            if seed not in known:
                with file.open("a") as kept:
                    kept.write(f"{seed}  {violation.law.splitlines()[0]}\n")
        seed += 1
    say(f"{tried} fresh schedules, the last of seed {seed - 1}; {broken} broke a law")
    return broken
