"""What every peer's program shares: the words, the events, and how far it is. Standard library only.

Environment: ``PEER_FOLDER`` (where progress is written), ``PEER_TUPLES`` (per source), ``PEER_PARALLEL``.
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
    """The 175 000 words."""
    rng = random.Random(1)
    words: set[str] = set()
    while len(words) < WORDS:
        words.add("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.choice((4, 5, 6, 7, 8, 9, 10, 11, 12)))))
    return sorted(words)


def word_maker(seed: int) -> Callable[[], str]:
    """Gives one random word a call."""
    words, draw = dictionary(), random.Random(seed).random
    return lambda: words[int(draw() * WORDS)]


def event_maker(seed: int) -> Callable[[], tuple[str, str, float]]:
    """Gives one event a call: user, client, seconds since 1970."""
    draw, now = random.Random(seed).random, time.time
    return lambda: (f"u{int(draw() * USERS)}", "web", now())


class Progress:
    """Counts the tuples of one worker and notes when each ten thousandth came."""

    def __init__(self) -> None:
        path = os.path.join(os.environ["PEER_FOLDER"], f"progress.{os.getpid()}.{id(self)}")
        self._file = open(path, "a", buffering=1)  # noqa: SIM115  # open as long as the worker lives
        self._count = 0
        self._next = EVERY

    def add(self, count: int = 1) -> None:
        """So many more."""
        if not self._count:
            self._file.write(f"{time.time():.6f} 0\n")
        self._count += count
        if self._count >= self._next:
            self._file.write(f"{time.time():.6f} {self._count}\n")
            self._next = self._count + EVERY

    def finish(self) -> None:
        """The last note."""
        self._file.write(f"{time.time():.6f} {self._count}\n")
