"""Small paced topology with failures, whose counts the tracker must show."""

from __future__ import annotations

import time
from typing import Any

from heronry import Bolt, Grouping, Spout, Topology

EVERY_SECONDS = 0.01


class NumberSpout(Spout):
    """Spout that emits ``user.numbers`` numbers, one every 10 ms."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start from zero."""
        self.limit = config["user.numbers"]
        self.number = 0
        self.next_at = time.monotonic()

    def next_tuple(self) -> None:
        """Emit the next number when it is due."""
        if self.number < self.limit and time.monotonic() >= self.next_at:
            self.emit((self.number,), tup_id=self.number)
            self.number += 1
            self.next_at += EVERY_SECONDS


class SieveBolt(Bolt):
    """Bolt that fails every tenth number and acks the others."""

    def process(self, tup: Any) -> None:
        """Ack or fail explicitly."""
        if tup.values[0] % 10 == 7:
            self.fail(tup)
        else:
            self.ack(tup)


class PacedWords(Topology):
    """Topology of one spout and two bolts."""

    config = {"topology.reliability.mode": "ATLEAST_ONCE", "user.numbers": 300, "user.password": "s3cr3t"}
    numbers = NumberSpout.spec()
    sieve = SieveBolt.spec(inputs={numbers: Grouping.SHUFFLE}, par=2)
