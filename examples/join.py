"""A join with several anchors: an order and its payment, from two spouts, become one tuple anchored to both.

    heron submit local examples/join.py Orders -- OUTPUT [ORDERS]

Fields grouping by order number sends both sides to the same task. The bolt keeps the side that arrives first unacked.
When the other side arrives, it emits the pair anchored to both, and acks both. If the pair fails downstream, both
spouts emit again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Topology


class NumberedSpout(Spout):
    """Emit (order, detail) once for each order, and failed ones again."""

    outputs = ["order", "detail"]
    label = ""
    stride = 1

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Visit each order once, in steps of ``stride``, which is coprime to the number of orders."""
        self.orders = config["user.orders"]
        self.position = 0
        self.again: list[int] = []

    def next_tuple(self) -> None:
        """Emit one order."""
        if self.again:
            order = self.again.pop()
        elif self.position < self.orders:
            order = self.position * self.stride % self.orders
            self.position += 1
        else:
            return
        self.emit([order, f"{self.label} {order}"], tup_id=order)

    def fail(self, tup_id: int) -> None:
        """Emit the order again later."""
        self.again.append(tup_id)


class OrderSpout(NumberedSpout):
    """Orders in ascending order."""

    label = "order"


class PaymentSpout(NumberedSpout):
    """Payments in another order."""

    label, stride = "payment", 7


class JoinBolt(Bolt):
    """Keep one side of an order until the other arrives."""

    outputs = ["order", "ordered", "paid"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without waiting sides."""
        self.waiting: dict[tuple[str, int], Any] = {}

    def process(self, tup: Any) -> None:
        """Emit the pair if the other side has arrived; else keep the tuple."""
        order = tup.values[0]
        other_side = "payments" if tup.component == "orders" else "orders"
        other = self.waiting.pop((other_side, order), None)
        if other is None:
            self.waiting[tup.component, order] = tup
            return
        first, second = (tup, other) if tup.component == "orders" else (other, tup)
        self.emit([order, first.values[1], second.values[1]], anchors=[first, second])
        self.ack(first)
        self.ack(second)


class PairBolt(BasicBolt):
    """Append each pair to a file."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open one file for each task, line buffered."""
        self.file = Path(config["user.output"], f"pairs-{context.get_task_id()}.txt").open("a", buffering=1)

    def process(self, tup: Any) -> None:
        """Write one line."""
        self.file.write("\t".join(map(str, tup.values)) + "\n")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Orders(Topology):
    """orders + payments -> join -> pairs."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # relative to the shell that submits
        "user.orders": int(_arguments.get(1, 1000)),
    }

    orders = OrderSpout.spec()
    payments = PaymentSpout.spec()
    join = JoinBolt.spec(par=2, inputs={orders: Grouping.fields("order"), payments: Grouping.fields("order")})
    pairs = PairBolt.spec(inputs={join: Grouping.SHUFFLE})
