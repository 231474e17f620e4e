"""Topologies whose history is read: ``Uneven`` fails on one word, and ``Pressed`` is under constant backpressure."""

from __future__ import annotations

import time
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology, Tuple


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


class Words(Spout):
    """Spout that emits large values as fast as possible."""

    outputs = ("word", "load")

    def splits(self) -> list[tuple[str, int]]:
        return [("all", 0)]

    def next_tuple(self) -> None:
        if "all" not in self.owned_splits():
            time.sleep(0.01)
            return
        number = self.keyed.get("all", 0)
        self.keyed["all"] = number + 1
        self.emit((f"w{number % 50}", "x" * 10_000))


class Count(BasicBolt):
    """Bolt that takes 5 ms per tuple."""

    def process(self, tup: Tuple) -> None:
        time.sleep(0.005)
        self.keyed[tup.values[0]] = self.keyed.get(tup.values[0], 0) + 1


class Pressed(Topology):
    """Topology words -> count, with a checkpoint every second."""

    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 1.0,
        "topology.backpressure.high.watermark.bytes": 1 << 20,
        "topology.backpressure.low.watermark.bytes": 1 << 19,
    }
    words = Words.spec(par=1)
    count = Count.spec(par=1, inputs={words: Grouping.fields("word")})
