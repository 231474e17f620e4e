"""Word count of the Heron paper (section 7.3): random words of a dictionary of 175 000 words.

    heron submit local examples/random_words.py RandomWordCount

The spout emits a random word in each call, as fast as it can. Each counting task keeps a map from word to count.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from heronry import BatchBolt, Grouping, Spout, Topology

DICTIONARY_WORDS = 175_000


def dictionary(size: int = DICTIONARY_WORDS, seed: int = 1) -> list[str]:
    """Return ``size`` distinct lower-case words of 4 to 12 letters, determined by the seed."""
    rng = random.Random(seed)
    words: set[str] = set()
    while len(words) < size:
        words.add("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 12))))
    return sorted(words)


class RandomWordSpout(Spout):
    """Emit random words of the dictionary."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Make the dictionary."""
        self.words = dictionary(config.get("user.dictionary", DICTIONARY_WORDS))
        self.choose = random.Random(config.get("user.seed")).choice

    def next_tuple(self) -> None:
        """Emit one word, as in the paper."""
        self.emit((self.choose(self.words),))


class CountBolt(BatchBolt):
    """Count words by batches."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without counts."""
        self.counts: Counter[str] = Counter()

    def process_batch(self, tuples: Any) -> None:
        """Count a whole column, without an object per tuple."""
        self.counts.update(tuples.column("word"))


class RandomWordCount(Topology):
    """words -> counts, at most once."""

    words = RandomWordSpout.spec(par=1)
    counts = CountBolt.spec(par=1, inputs={words: Grouping.fields("word")})
