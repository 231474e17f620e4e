"""Topology of a spout and three bolts with acks that every scheduler must run. It writes no output.

heron submit CLUSTER tests/support/contracts/contract_topology.py Contract
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

PER_SECOND = 50


class Steady(Spout):
    """Spout of ``PER_SECOND`` numbers per second."""

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the clock."""
        self.began, self.n = time.monotonic(), 0

    def next_tuple(self) -> None:
        """Emit the numbers that are due."""
        if self.n < (time.monotonic() - self.began) * PER_SECOND:
            self.n += 1
            self.emit([self.n], tup_id=self.n)


class Nothing(BasicBolt):
    """Bolt that acks every tuple."""

    outputs: list[str] = []

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


_given: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


class Contract(Topology):
    """Topology steady -> nothing, in two containers."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.stmgrs": 2,
        "topology.component.cpumap": {"steady": 0.1, "nothing": 0.1},
        **_given,
    }
    steady = Steady.spec()
    nothing = Nothing.spec(par=3, inputs={steady: Grouping.SHUFFLE})
