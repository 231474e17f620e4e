"""The word count of the Heron paper (section 7.3): random words of a dictionary of 175 000, counted.

    heron submit local examples/random_words.py RandomWordCount

A spout picks a word at random in every call and is as fast as it is let; each counter keeps a map from word to count.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from heronry import BatchBolt, Grouping, Spout, Topology

DICTIONARY_WORDS = 175_000


def dictionary(size: int = DICTIONARY_WORDS, seed: int = 1) -> list[str]:
    """``size`` distinct lower-case words of 4 to 12 letters; the same for the same seed, on every machine."""
    rng = random.Random(seed)
    words: set[str] = set()
    while len(words) < size:
        words.add("".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 12))))
    return sorted(words)


class RandomWordSpout(Spout):
    """Emits a word of the dictionary, chosen at random."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Make the dictionary, once."""
        self.words = dictionary(config.get("user.dictionary", DICTIONARY_WORDS))
        self.choose = random.Random(config.get("user.seed")).choice

    def next_tuple(self) -> None:
        """One word a call, as in the paper."""
        self.emit((self.choose(self.words),))


class CountBolt(BatchBolt):
    """Counts words, a batch at a time."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """An empty map."""
        self.counts: Counter[str] = Counter()

    def process_batch(self, tuples: Any) -> None:
        """A whole column at once: no object per tuple."""
        self.counts.update(tuples.column("word"))


class RandomWordCount(Topology):
    """words -> counts, at most once."""

    words = RandomWordSpout.spec(par=1)
    counts = CountBolt.spec(par=1, inputs={words: Grouping.fields("word")})
