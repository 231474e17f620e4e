"""Topology of a spout of numbers and a bolt that counts them by key, exactly once, for ``benchmarks.recovery``.

The file is submitted alone, so it imports nothing of its folder. The first pass over the keys runs at full speed, the
rest at a rate. Each task of the bolt has a row of three 64-bit words in a file that the driver also maps: its process,
the microsecond at which it processed the newest tuple (on the clock that all processes of a machine share), and its
number of keys.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from typing import Any

from heronry import Bolt, Grouping, Spout, TopologyBuilder

ROW = struct.Struct("=QQQ")
SPLIT = "all"
MOST_AT_ONCE = 500


class Numbers(Spout):
    """Spout of numbers by position."""

    outputs = ["key"]

    def splits(self) -> list[str]:
        """Return one split."""
        return [SPLIT]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the rate."""
        self.keys, self.rate = config["user.keys"], config["user.rate"]
        self.owns = SPLIT in self.owned_splits()
        self.last = time.perf_counter()

    def next_tuple(self) -> None:
        """Emit the numbers that are due."""
        if not self.owns:
            return
        number, now = self.keyed.get(SPLIT, 0), time.perf_counter()
        due = MOST_AT_ONCE if number < self.keys else min(int((now - self.last) * self.rate), MOST_AT_ONCE)
        if not due:
            return
        self.last = now
        for place in range(number, number + due):
            self.emit((f"key-{place % self.keys}",))
        self.keyed[SPLIT] = number + due


class Count(Bolt):
    """Bolt that counts by key."""

    output_effect = "idempotent"  # the driver may see the effect of replayed records

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Find the task's row."""
        with open(config["user.board"], "r+b") as file:
            self.board = mmap.mmap(file.fileno(), 0)
        self.row, self.pid = context.get_task_id() * ROW.size, os.getpid()

    def process(self, tup: Any) -> None:
        """Count one number."""
        key = tup.values[0]
        self.keyed[key] = self.keyed.get(key, 0) + 1
        ROW.pack_into(self.board, self.row, self.pid, int(time.perf_counter() * 1e6), len(self.keyed))


def build(name: str, tasks: int, config: dict[str, Any]) -> TopologyBuilder:
    """Return the topology with this many counting tasks."""
    builder = TopologyBuilder(name)
    builder.set_config({"topology.reliability.mode": "EFFECTIVELY_ONCE", **config})
    numbers = builder.add_spout("numbers", Numbers, par=1)
    builder.add_bolt("count", Count, par=tasks, inputs={numbers: Grouping.fields("key")})
    return builder


if __name__ == "kept_topology" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
