"""Topology of a spout that emits as fast as possible and slow bolts in a row; the file is submitted alone.

The last bolt records when each tuple was done and its age. The spout records its emits, acks and fails.
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
    """Spout that emits one tuple per call."""

    outputs = ["born", "pad"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Prepare the padding."""
        self.pad = "x" * config["user.size"]
        self.settled = (Path(config["user.folder"]) / "settled").open("a", buffering=1)
        self.emitted = os.open(Path(config["user.folder"]) / "emitted", os.O_WRONLY | os.O_CREAT)
        self.number = 0

    def next_tuple(self) -> None:
        """Emit one tuple with the current time."""
        self.number += 1
        os.pwrite(self.emitted, b"%d" % self.number, 0)
        self.emit([time.monotonic(), self.pad], tup_id=self.number)

    def ack(self, tup_id: int) -> None:
        """Record the ack."""
        self.settled.write(f"{time.monotonic()} acked\n")

    def fail(self, tup_id: int, reason: Any) -> None:
        """Record the fail."""
        self.settled.write(f"{time.monotonic()} {reason.kind}\n")


class SlowBolt(BasicBolt):
    """Bolt that takes a fixed time per tuple."""

    outputs = ["born", "pad"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the time per tuple."""
        self.seconds = config["user.seconds"]

    def process(self, tup: Any) -> None:
        """Sleep, then pass the tuple on."""
        time.sleep(self.seconds)
        self.emit([*tup.values])


class LastBolt(BasicBolt):
    """Bolt at the end of the row."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the time per tuple and the output path."""
        self.seconds = config["user.seconds"]
        self.done = (Path(config["user.folder"]) / "done").open("a", buffering=1)

    def process(self, tup: Any) -> None:
        """Sleep, then record the tuple."""
        time.sleep(self.seconds)
        now = time.monotonic()
        self.done.write(f"{now} {now - tup.values[0]}\n")


def build(name: str, seconds: list[float], config: dict[str, Any]) -> TopologyBuilder:
    """Return the spout and, for each entry, a bolt that takes this many seconds per tuple."""
    builder = TopologyBuilder(name)
    builder.set_config(config)
    before = builder.add_spout("spout", FloodSpout, par=1)
    for number, each in enumerate(seconds, 1):
        kind: Any = LastBolt if number == len(seconds) else SlowBolt
        before = builder.add_bolt(f"bolt{number}", kind, par=1, inputs=[before], config={"user.seconds": each})
    return builder


if __name__ == "slow_topology" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
