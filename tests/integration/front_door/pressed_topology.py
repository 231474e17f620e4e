"""Topology whose spout is constantly under backpressure from a slow bolt; state is kept."""

from __future__ import annotations

import time

from heronry import BasicBolt, Config, Grouping, Spout, Topology, Tuple


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
