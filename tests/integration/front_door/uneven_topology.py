"""Topology of a paced spout and a bolt that takes a millisecond per tuple and fails on one word."""

from __future__ import annotations

import time
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology


class Paced(Spout):
    """Spout that emits a few hundred words per second, three thousand in total."""

    outputs = ["word"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.sent = 0
        self.until = 3000

    def next_tuple(self) -> None:
        if self.sent < self.until:
            for _ in range(5):
                self.sent += 1
                self.emit([f"word-{self.sent % 10}"])
            time.sleep(0.01)


class Slow(BasicBolt):
    """Bolt that works for a millisecond, or raises."""

    def process(self, tup: Any) -> None:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        if tup.values[0] == "word-7":
            raise ValueError("a word that is not liked")


class Uneven(Topology):
    """Topology of one spout and one bolt with more tasks (four) than it needs."""

    words = Paced.spec(par=1)
    slow = Slow.spec(par=4, inputs={words: Grouping.fields("word")})
