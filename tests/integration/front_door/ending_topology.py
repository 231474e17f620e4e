"""Topologies over bounded sources, which finish.

heron submit local ending_topology.py Kept -- FOLDER
heron submit local ending_topology.py Acked -- FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology
from heronry.connect.files import JsonLinesSink
from heronry.connect.numbers import Sequence

NUMBERS = 5_000
FOLDER = "".join(sys.argv[1:])  # at submit; topology processes have no arguments


class Kept(Topology):
    """Topology that writes numbers to files, exactly once."""

    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.EFFECTIVELY_ONCE,
        Config.TOPOLOGY_STATEFUL_CHECKPOINT_INTERVAL_SECS: 0.5,
    }
    numbers = Sequence.spec(par=2, config={"user.sequence.count": NUMBERS, "user.sequence.splits": 3})
    out = JsonLinesSink.spec(par=2, inputs={numbers: Grouping.SHUFFLE}, config={"user.sink.folder": f"{FOLDER}/out"})


class Few(Spout):
    """Spout that emits a hundred numbers and replays those that fail."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.left = list(range(100))

    def next_tuple(self) -> None:
        if self.left:
            number = self.left.pop()
            self.emit((number,), tup_id=number)

    def fail(self, tup_id: Any) -> None:
        self.left.append(tup_id)

    def at_end(self) -> bool:
        return not self.left


class Waits(BasicBolt):
    """Bolt that fails every tuple until a file exists."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.go = Path(config["user.folder"], "go")

    def process(self, tup: Any) -> None:
        if not self.go.exists():
            raise RuntimeError("not yet")


class Acked(Topology):
    """Topology in which every number is acked in the end."""

    config = {
        Config.TOPOLOGY_RELIABILITY_MODE: Config.ATLEAST_ONCE,
        "topology.max.spout.pending": 10,
        "user.folder": FOLDER,
    }
    few = Few.spec()
    waits = Waits.spec(inputs={few: Grouping.SHUFFLE})
