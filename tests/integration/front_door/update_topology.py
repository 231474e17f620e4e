"""Topologies that count numbers by key, with acks or with state."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology, Tuple
from heronry.connect.files import JsonLinesSink

MANY = 50_000  # numbers per round of the acked spout


class Acked(Spout):
    """Spout that emits the numbers up to MANY, replays each until it is acked, and writes the acked count to a file."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.file = Path(config["user.folder"], "acked")
        self.left = list(range(MANY, 0, -1))
        self.waiting = MANY

    def next_tuple(self) -> None:
        for _ in range(10):
            if not self.left:
                time.sleep(0.01)
                return
            number = self.left.pop()
            self.emit((number,), tup_id=number)

    def ack(self, tup_id: int) -> None:
        self.waiting -= 1
        if self.waiting % 1000 == 0:
            self.file.write_text(str(MANY - self.waiting))

    def fail(self, tup_id: int, reason: Any) -> None:
        self.left.append(tup_id)


class Seen(BasicBolt):
    """Bolt that passes tuples on with its configured limit."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.log.info("limit=%r", config.get("user.limit"))

    def process(self, tup: Tuple) -> None:
        self.emit(tup.values)


class Numbers(Spout):
    """Spout that emits consecutive numbers, a few hundred per second."""

    outputs = ("number",)

    def splits(self) -> list[tuple[str, int]]:
        return [("all", 0)]

    def next_tuple(self) -> None:
        time.sleep(0.002)
        if "all" in self.owned_splits():
            number = self.keyed.get("all", 0)
            self.keyed["all"] = number + 1
            self.emit((number % 20,))


class Count(BasicBolt):
    """Bolt that counts each number by key, and all its numbers in the task's own state.

    With more than three tasks, it does not start while the file ``refuses`` exists. With two tasks, it starts slowly
    while the file ``waits`` exists.
    """

    outputs = ("number", "count")

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.log.info("limit=%r", config.get("user.limit"))
        peers = context.get_component_tasks(context.get_component_id())
        if len(peers) > 3 and Path(config["user.folder"], "refuses").exists():
            raise RuntimeError("the service takes three clients at most")
        while len(peers) == 2 and Path(config["user.folder"], "waits").exists():
            time.sleep(0.05)

    def merge_state(self, states: list[dict[str, int]]) -> None:
        self.state["all"] = self.state.get("all", 0) + sum(state["all"] for state in states)

    def process(self, tup: Tuple) -> None:
        number = tup.values[0]
        self.keyed[number] = self.keyed.get(number, 0) + 1
        self.state["all"] = self.state.get("all", 0) + 1
        self.emit((number, self.keyed[number]))

    def post_save(self, checkpoint_id: str) -> None:
        self.log.info("checkpoint %s: all=%d", checkpoint_id, self.saved)

    def pre_save(self, checkpoint_id: str) -> None:
        self.saved = self.state.get("all", 0)


class Pairs(BasicBolt):
    """Bolt that emits each number twice."""

    outputs = ("number", "again")

    def process(self, tup: Tuple) -> None:
        self.emit((tup.values[0], tup.values[0]))


class Hoards(BasicBolt):
    """Bolt with its own state, which cannot be merged."""

    def process(self, tup: Tuple) -> None:
        self.state["last"] = tup.values[0]


_folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")


class WithAcks(Topology):
    """Topology acked -> seen -> last."""

    config = {Config.TOPOLOGY_RELIABILITY_MODE: Config.ATLEAST_ONCE, Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS: 5}
    acked = Acked.spec(par=1, config={"user.folder": _folder})
    seen = Seen.spec(par=2, inputs={acked: Grouping.SHUFFLE})
    last = Seen.spec(par=2, inputs={seen: Grouping.fields("number")}, config={"user.limit": 1})


class Kept(Topology):
    """Topology numbers -> count -> out, and -> hoards."""

    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 1.0,
    }
    numbers = Numbers.spec(par=2)
    count = Count.spec(par=2, inputs={numbers: Grouping.fields("number")}, config={"user.folder": _folder})
    hoards = Hoards.spec(par=2, inputs={count: Grouping.fields("number")})
    out = JsonLinesSink.spec(par=1, inputs={count: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/out"})


class CountAnew(Count):
    """Changed code of ``Count`` that continues from its counts."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.log.info("begins with %d keys", len(self.keyed))


class Later(Topology):
    """Topology as ``Kept``, with other code and parallelism, another first component, and without hoards."""

    config = Kept.config
    ahead = Numbers.spec(par=1)
    numbers = Numbers.spec(par=1)
    count = CountAnew.spec(par=3, inputs={numbers: Grouping.fields("number")}, config={"user.folder": _folder})
    out = JsonLinesSink.spec(par=2, inputs={count: Grouping.SHUFFLE}, config={"user.sink.folder": f"{_folder}/out"})
    seen = Seen.spec(par=1, inputs={ahead: Grouping.SHUFFLE})


class OtherKeys(Topology):
    """Topology as ``Kept``, whose counts have keys of two fields."""

    config = Kept.config
    numbers = Numbers.spec(par=2)
    pairs = Pairs.spec(par=1, inputs={numbers: Grouping.SHUFFLE})
    count = Seen.spec(par=2, inputs={pairs: Grouping.fields("number", "again")})
