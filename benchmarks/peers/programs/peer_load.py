"""Shared load of the peers' programs: words, events and progress. Standard library only.

Environment: ``PEER_FOLDER`` (folder of the progress), ``PEER_TUPLES`` (per source), ``PEER_PARALLEL``.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

TUPLES = int(os.environ.get("PEER_TUPLES", "1000000"))
PARALLEL = int(os.environ.get("PEER_PARALLEL", "1"))
WORDS = 175_000
USERS = 100_000
EVERY = 10_000


def dictionary() -> list[str]:
    """Return the 175 000 words."""
    rng = random.Random(1)
    words: set[str] = set()
    while len(words) < WORDS:
        words.add("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.choice((4, 5, 6, 7, 8, 9, 10, 11, 12)))))
    return sorted(words)


def word_maker(seed: int) -> Callable[[], str]:
    """Return a function that returns one random word per call."""
    words, draw = dictionary(), random.Random(seed).random
    return lambda: words[int(draw() * WORDS)]


def event_maker(seed: int) -> Callable[[], tuple[str, str, float]]:
    """Return a function that returns one event per call: user, client, seconds since 1970."""
    draw, now = random.Random(seed).random, time.time
    return lambda: (f"u{int(draw() * USERS)}", "web", now())


class Progress:
    """Tuple count of one worker, recorded every ten thousand tuples."""

    def __init__(self) -> None:
        path = os.path.join(os.environ["PEER_FOLDER"], f"progress.{os.getpid()}.{id(self)}")
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  # open as long as the worker lives
        self._count = 0
        self._next = EVERY

    def add(self, count: int = 1) -> None:
        """Add to the count."""
        if not self._count:
            self._file.write(f"{time.time():.6f} 0\n")
        self._count += count
        if self._count >= self._next:
            self._file.write(f"{time.time():.6f} {self._count}\n")
            self._next = self._count + EVERY

    def finish(self) -> None:
        """Record the final count."""
        self._file.write(f"{time.time():.6f} {self._count}\n")
