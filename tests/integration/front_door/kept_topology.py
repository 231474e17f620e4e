"""Topology that counts words in ``self.keyed``; the bolt raises while the file in its first argument exists."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology, Tuple


class Words(Spout):
    """Spout that repeats a few words, from its restored position."""

    outputs = ("word",)

    def splits(self) -> list[tuple[str, int]]:
        return [("all", 0)]

    def next_tuple(self) -> None:
        if "all" not in self.owned_splits():
            time.sleep(0.01)
            return
        number = self.keyed.get("all", 0)
        self.keyed["all"] = number + 1
        time.sleep(0.005)
        self.emit((f"w{number % 50}",))


class Count(BasicBolt):
    """Bolt that counts each word."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.fails = config["user.fails"]

    def process(self, tup: Tuple) -> None:
        if os.path.exists(self.fails):
            raise RuntimeError("the service behind it is away")
        self.keyed[tup.values[0]] = self.keyed.get(tup.values[0], 0) + 1


class Kept(Topology):
    """Topology words -> count, with checkpoints on request only."""

    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 3600.0,
    }
    _fails = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "fails")
    words = Words.spec(par=1)
    count = Count.spec(par=2, inputs={words: Grouping.fields("word")}, config={"user.fails": _fails})
