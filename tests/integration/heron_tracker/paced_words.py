"""A small topology at a gentle pace, with failures: what the tracker shows of it is compared with what it counted."""

from __future__ import annotations

import time
from typing import Any

from heronry import Bolt, Grouping, Spout, Topology

EVERY_SECONDS = 0.01


class NumberSpout(Spout):
    """``user.numbers`` numbers, one each 10 ms."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """From nought."""
        self.limit = config["user.numbers"]
        self.number = 0
        self.next_at = time.monotonic()

    def next_tuple(self) -> None:
        """The next number, if it is time."""
        if self.number < self.limit and time.monotonic() >= self.next_at:
            self.emit((self.number,), tup_id=self.number)
            self.number += 1
            self.next_at += EVERY_SECONDS


class SieveBolt(Bolt):
    """Fails every tenth number, raises nothing, acks the others."""

    def process(self, tup: Any) -> None:
        """By hand."""
        if tup.values[0] % 10 == 7:
            self.fail(tup)
        else:
            self.ack(tup)


class PacedWords(Topology):
    """One spout, two bolts."""

    config = {"topology.reliability.mode": "ATLEAST_ONCE", "user.numbers": 300, "user.password": "s3cr3t"}
    numbers = NumberSpout.spec()
    sieve = SieveBolt.spec(inputs={numbers: Grouping.SHUFFLE}, par=2)
