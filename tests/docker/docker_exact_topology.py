"""Topology with state that counts numbers of four splits by key and writes them in two phases.

    heron submit docker tests/docker/docker_exact_topology.py Exact -- '{"numbers": …, "per_second": …, "config": …}'

Each number is written with the count of its key so far, to ``exact/`` on the topology's volume.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology
from heronry.connect.files import JsonLinesSink

FOLDER = "/var/lib/heronry/exact"
SPLITS, KEYS = 4, 50


class Numbers(Spout):
    """Spout of ``user.numbers`` numbers in each split; each task emits ``user.per_second`` numbers per second."""

    outputs = ("number", "key")

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the clock."""
        self.numbers, self.per_second = config["user.numbers"], config["user.per_second"]
        self.began, self.emitted = time.monotonic(), 0

    def splits(self) -> list[tuple[str, int]]:
        """Return the four splits."""
        return [(f"split-{split}", split) for split in range(SPLITS)]

    def next_tuple(self) -> None:
        """Emit the numbers that are due."""
        if self.emitted >= (time.monotonic() - self.began) * self.per_second:
            return
        for split in self.owned_splits():
            position = self.keyed.get(split, 0)
            for at in range(position, min(position + 10, self.numbers)):
                number = int(split[-1]) * self.numbers + at
                self.emit((number, number % KEYS))
                self.keyed[split] = at + 1
                self.emitted += 1


class Count(BasicBolt):
    """Bolt that counts numbers by key."""

    outputs = ("key", "count")

    def process(self, tup: Any) -> None:
        """Count the number."""
        key = tup.values[1]
        self.keyed[key] = self.keyed.get(key, 0) + 1
        self.emit((key, self.keyed[key]))


class Exact(Topology):
    """Topology numbers -> counts -> files."""

    _given: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    config = {
        "topology.reliability.mode": "EFFECTIVELY_ONCE",
        "topology.stateful.checkpoint.interval.secs": 1.0,
        "topology.stmgrs": 2,
        "user.numbers": _given.get("numbers", 1000),
        "user.per_second": _given.get("per_second", 500),
        "user.sink.folder": _given.get("folder", FOLDER),
        **_given.get("config", {}),
    }
    numbers = Numbers.spec(par=2)
    counts = Count.spec(par=2, inputs={numbers: Grouping.fields("key")})
    files = JsonLinesSink.spec(par=2, inputs={counts: Grouping.SHUFFLE})
