"""Word count bolt as a Storm user writes it with streamparse."""

from __future__ import annotations

from collections import Counter
from typing import Any

from streamparse import Bolt


class WordCountBolt(Bolt):
    """Bolt that counts and emits word and count; streamparse anchors and acks."""

    outputs = ["word", "count"]

    def initialize(self, conf: Any, ctx: Any) -> None:
        """Start at zero."""
        self.counter: Counter[str] = Counter()

    def process(self, tup: Any) -> None:
        """Count one word."""
        word = tup.values[0]
        self.counter[word] += 1
        self.emit([word, self.counter[word]])


if __name__ == "__main__":
    WordCountBolt().run()
