"""A spout that emits as fast as it may, and slow bolts in a row. Submitted as it is, so this file imports nothing here.

The last bolt writes when each tuple was done and how old it was then, the spout how many it has emitted, what was acked
and what failed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Spout, TopologyBuilder


class FloodSpout(Spout):
    """One tuple for each call, whenever it is asked."""

    outputs = ["born", "pad"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Prepare the padding."""
        self.pad = "x" * config["user.size"]
        self.settled = (Path(config["user.folder"]) / "settled").open("a", buffering=1)
        self.emitted = os.open(Path(config["user.folder"]) / "emitted", os.O_WRONLY | os.O_CREAT)
        self.number = 0

    def next_tuple(self) -> None:
        """One tuple, of this moment."""
        self.number += 1
        os.pwrite(self.emitted, b"%d" % self.number, 0)
        self.emit([time.monotonic(), self.pad], tup_id=self.number)

    def ack(self, tup_id: int) -> None:
        """Note it."""
        self.settled.write(f"{time.monotonic()} acked\n")

    def fail(self, tup_id: int, reason: Any) -> None:
        """Note it."""
        self.settled.write(f"{time.monotonic()} {reason.kind}\n")


class SlowBolt(BasicBolt):
    """Takes its time for each tuple."""

    outputs = ["born", "pad"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """How long."""
        self.seconds = config["user.seconds"]

    def process(self, tup: Any) -> None:
        """Sleep, then pass it on."""
        time.sleep(self.seconds)
        self.emit([*tup.values])


class LastBolt(BasicBolt):
    """The end of the row."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """How long, and where to write."""
        self.seconds = config["user.seconds"]
        self.done = (Path(config["user.folder"]) / "done").open("a", buffering=1)

    def process(self, tup: Any) -> None:
        """Sleep, then note it."""
        time.sleep(self.seconds)
        now = time.monotonic()
        self.done.write(f"{now} {now - tup.values[0]}\n")


def build(name: str, seconds: list[float], config: dict[str, Any]) -> TopologyBuilder:
    """The spout, and a bolt of so many seconds a tuple for each entry."""
    builder = TopologyBuilder(name)
    builder.set_config(config)
    before = builder.add_spout("spout", FloodSpout, par=1)
    for number, each in enumerate(seconds, 1):
        kind: Any = LastBolt if number == len(seconds) else SlowBolt
        before = builder.add_bolt(f"bolt{number}", kind, par=1, inputs=[before], config={"user.seconds": each})
    return builder


if __name__ == "slow_topology" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
