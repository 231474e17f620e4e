"""Finite topology with known totals.

    heron submit local finite_topology.py Finite -- FOLDER

The spout emits the first half at once, and the second half when the file ``FOLDER/second`` exists.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Stream, Topology

NUMBERS = 4_000
RARE = 10  # every tenth number also goes to the stream ``rare``
BAD = 100  # every hundredth number raises
COPIES = 2


class Numbers(Spout):
    """Spout that emits each number once, tracked."""

    outputs = [Stream(fields=["number"]), Stream(fields=["number"], name="rare")]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.second = Path(config["user.folder"], "second")
        self.number = 0
        self.limit = NUMBERS // 2

    def next_tuple(self) -> None:
        if self.number == NUMBERS // 2 and self.second.exists():
            self.limit = NUMBERS
        if self.number < self.limit:
            self.emit([self.number], tup_id=self.number)
            if self.number % RARE == 0:
                self.emit([self.number], tup_id=-1 - self.number, stream="rare")
            self.number += 1


class Worker(BasicBolt):
    """Bolt that emits two tuples for each input, or raises."""

    outputs = ["number", "copy"]

    def process(self, tup: Any) -> None:
        number = tup["number"]
        if tup.stream == "rare":
            return
        if number % BAD == BAD - 1:
            raise ValueError("a bad number")
        for copy in range(COPIES):
            self.emit([number, copy])


class Sink(BasicBolt):
    """Bolt at the end of the graph."""

    def process(self, tup: Any) -> None:
        pass


class Finite(Topology):
    """Topology numbers -> worker -> sink, in two containers."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.stmgrs": 2,
        "user.folder": os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ".",
    }

    numbers = Numbers.spec()
    worker = Worker.spec(par=2, inputs={numbers: Grouping.SHUFFLE, numbers["rare"]: Grouping.SHUFFLE})
    sink = Sink.spec(par=2, inputs={worker: Grouping.fields("number")})


def truth(numbers: int) -> dict[str, dict[str, float]]:
    """Return totals by component and metric, for this many numbers emitted and settled."""
    bad, rare = numbers // BAD, numbers // RARE
    good = numbers - bad
    return {
        "numbers": {
            "__emit-count/default": numbers, "__emit-count/rare": rare, "__ack-count/default": good,
            "__ack-count/rare": rare, "__fail-count/default": bad,
        },
        "worker": {
            "__execute-count/numbers/default": numbers, "__execute-count/numbers/rare": rare,
            "__ack-count/numbers/default": good, "__ack-count/numbers/rare": rare,
            "__fail-count/numbers/default": bad, "__emit-count/default": COPIES * good,
        },
        "sink": {"__execute-count/worker/default": COPIES * good, "__ack-count/worker/default": COPIES * good},
    }  # fmt: skip
