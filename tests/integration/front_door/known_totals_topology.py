"""Finite topology with known totals: fan-out to two bolts and on to two more, with fails of both kinds.

    heron submit local known_totals_topology.py KnownTotals

numbers -> left (shuffle), right (fields); left -> sink (fields), watcher (all). Each number is emitted once, tracked.
"""

from __future__ import annotations

from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Topology
from heronry.api.metrics import CountMetric, LatencyMetric

NUMBERS = 3_000
REFUSED_EACH, REFUSED = 50, 7  # left fails these
BAD_EACH, BAD = 100, 3  # right raises on these; the two sets are disjoint
COPIES = 3
WATCHERS = 2


class Numbers(Spout):
    """Spout that emits each number once."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.number = 0
        self.settled = CountMetric()
        context.register_metric("settled", self.settled)

    def next_tuple(self) -> None:
        if self.number < NUMBERS:
            self.emit([self.number], tup_id=self.number)
            self.number += 1

    def ack(self, tup_id: Any) -> None:
        self.settled.incr()

    def fail(self, tup_id: Any, reason: Any) -> None:
        self.settled.incr()


class Left(Bolt):
    """Bolt that emits three tuples for each input, or fails it with a reason."""

    outputs = ["number", "copy"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.copies = CountMetric()
        self.sizes = LatencyMetric()
        context.register_metric("copies", self.copies)
        context.register_metric("sizes", self.sizes)

    def process(self, tup: Any) -> None:
        number = tup["number"]
        if number % REFUSED_EACH == REFUSED:
            self.fail(tup, "refused")
            return
        for copy in range(COPIES):
            self.emit([number, copy], anchors=[tup])
        self.copies.incr(COPIES)
        self.sizes.update(1.0)
        self.ack(tup)


class Right(BasicBolt):
    """Bolt that raises on bad numbers."""

    def process(self, tup: Any) -> None:
        if tup["number"] % BAD_EACH == BAD:
            raise ValueError("a bad number")


class End(BasicBolt):
    """Bolt at the end of the graph."""

    def process(self, tup: Any) -> None:
        pass


class KnownTotals(Topology):
    """Topology in two containers."""

    config = {"topology.reliability.mode": "ATLEAST_ONCE", "topology.stmgrs": 2}

    numbers = Numbers.spec()
    left = Left.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
    right = Right.spec(par=2, inputs={numbers: Grouping.fields("number")})
    sink = End.spec(par=2, inputs={left: Grouping.fields("number")})
    watcher = End.spec(par=WATCHERS, inputs={left: Grouping.ALL})


REFUSED_COUNT, BAD_COUNT = NUMBERS // REFUSED_EACH, NUMBERS // BAD_EACH
GOOD = NUMBERS - REFUSED_COUNT - BAD_COUNT
OUT = COPIES * (NUMBERS - REFUSED_COUNT)  # tuples that left emits
SENT = 2 * NUMBERS + OUT + WATCHERS * OUT  # tuples that travel: a copy for each destination

# Totals by component and metric, over the component's instances.
TRUTH: dict[str, dict[str, float]] = {
    "numbers": {
        "__emit-count/default": NUMBERS, "__ack-count/default": GOOD, "__fail-count/default": REFUSED_COUNT + BAD_COUNT,
        "__failed-by-reason/failed/left": REFUSED_COUNT, "__failed-by-reason/exception/right": BAD_COUNT,
        "settled": NUMBERS,
    },
    "left": {
        "__execute-count/numbers/default": NUMBERS, "__ack-count/numbers/default": NUMBERS - REFUSED_COUNT,
        "__fail-count/numbers/default": REFUSED_COUNT, "__failed-by-reason/failed": REFUSED_COUNT,
        "__emit-count/default": OUT, "copies": OUT,
    },
    "right": {
        "__execute-count/numbers/default": NUMBERS, "__ack-count/numbers/default": NUMBERS - BAD_COUNT,
        "__fail-count/numbers/default": BAD_COUNT, "__failed-by-reason/exception": BAD_COUNT,
        "__exception-count": BAD_COUNT,
    },
    "sink": {"__execute-count/left/default": OUT, "__ack-count/left/default": OUT},
    "watcher": {"__execute-count/left/default": WATCHERS * OUT, "__ack-count/left/default": WATCHERS * OUT},
    "__stmgr__": {
        "__roots_opened": NUMBERS, "__roots_completed": GOOD, "__roots_failed": REFUSED_COUNT + BAD_COUNT,
        "__server/__tuples_from_workers": SENT, "__server/__tuples_to_workers": SENT,
    },
}  # fmt: skip

# Number of values by component and latency.
MEASURED: dict[str, dict[str, float]] = {
    "numbers": {"__complete-latency/default": GOOD, "__fail-latency/default": REFUSED_COUNT + BAD_COUNT},
    "left": {
        "__execute-latency/numbers/default": NUMBERS, "__queue-latency/numbers/default": NUMBERS,
        "__process-latency/numbers/default": NUMBERS - REFUSED_COUNT,
        "__fail-latency/numbers/default": REFUSED_COUNT, "sizes": NUMBERS - REFUSED_COUNT,
    },
    "right": {
        "__execute-latency/numbers/default": NUMBERS, "__queue-latency/numbers/default": NUMBERS,
        "__process-latency/numbers/default": NUMBERS - BAD_COUNT,
        "__fail-latency/numbers/default": BAD_COUNT,
    },
    **{
        name: {f"__{what}-latency/left/default": n for what in ("execute", "queue", "process")}
        for name, n in (("sink", OUT), ("watcher", WATCHERS * OUT))
    },
}  # fmt: skip
