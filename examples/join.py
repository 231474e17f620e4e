"""A join with several anchors: an order and its payment, from two spouts, become one tuple that hangs on both.

    heron submit local examples/join.py Orders -- OUTPUT [ORDERS]

Both sides come to the same task by their order number (fields grouping). The joiner keeps the side that came first,
*unacked*; when the other comes it emits the pair anchored to both and acks both. If the pair fails downstream, both
spouts emit again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Topology


class NumberedSpout(Spout):
    """Emits (order, detail) once for each order; again when it fails."""

    outputs = ["order", "detail"]
    label = ""
    stride = 1

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """A fixed walk over all orders: ``stride`` is coprime to their number, so each comes once."""
        self.orders = config["user.orders"]
        self.position = 0
        self.again: list[int] = []

    def next_tuple(self) -> None:
        """One order."""
        if self.again:
            order = self.again.pop()
        elif self.position < self.orders:
            order = self.position * self.stride % self.orders
            self.position += 1
        else:
            return
        self.emit([order, f"{self.label} {order}"], tup_id=order)

    def fail(self, tup_id: int) -> None:
        """Once more."""
        self.again.append(tup_id)


class OrderSpout(NumberedSpout):
    """Orders, in their own order."""

    label = "order"


class PaymentSpout(NumberedSpout):
    """Payments, in quite another."""

    label, stride = "payment", 7


class JoinBolt(Bolt):
    """Holds the side that came first until the other comes."""

    outputs = ["order", "ordered", "paid"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Nobody waits."""
        self.waiting: dict[tuple[str, int], Any] = {}

    def process(self, tup: Any) -> None:
        """Join, or wait."""
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
    """Appends each pair to a file."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """One file a task, line buffered."""
        self.file = Path(config["user.output"], f"pairs-{context.get_task_id()}.txt").open("a", buffering=1)

    def process(self, tup: Any) -> None:
        """One line."""
        self.file.write("\t".join(map(str, tup.values)) + "\n")

    def close(self) -> None:
        """Nothing is left in a buffer."""
        self.file.close()


class Orders(Topology):
    """orders + payments -> join -> pairs."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # as the shell that submits sees it
        "user.orders": int(_arguments.get(1, 1000)),
    }

    orders = OrderSpout.spec()
    payments = PaymentSpout.spec()
    join = JoinBolt.spec(par=2, inputs={orders: Grouping.fields("order"), payments: Grouping.fields("order")})
    pairs = PairBolt.spec(inputs={join: Grouping.SHUFFLE})
