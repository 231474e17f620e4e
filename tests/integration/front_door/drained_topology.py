"""Topologies of two bolts whose tasks record the numbers they emitted, received, or saw fail."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from heronry import BasicBolt, Bolt, Config, Grouping, Spout, Topology, Tuple


def book(config: dict[str, Any], name: str) -> TextIO:
    """Open the record file of this process."""
    return Path(config["user.folder"], f"{name}-{os.getpid()}").open("a", buffering=1)


class Numbers(Spout):
    """Spout that emits each number once, in order, until the file ``enough`` exists."""

    outputs = ("number",)

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.emitted, self.failed = book(config, "emitted"), book(config, "failed")
        self.enough = Path(config["user.folder"], "enough")
        self.last = 0

    def next_tuple(self) -> None:
        time.sleep(0.002)
        if self.enough.exists():
            return
        self.last += 1
        number = f"{os.getpid()}.{self.last}"
        self.emitted.write(f"{number}\n")
        self.emit((number,), tup_id=number)

    def fail(self, tup_id: str, reason: Any) -> None:
        self.failed.write(f"{tup_id} {reason}\n")


class Passes(BasicBolt):
    """Bolt that is slow, so that its queue is not empty."""

    outputs = ("number",)

    def process(self, tup: Tuple) -> None:
        time.sleep(0.001)
        self.emit(tup.values)


class Receives(BasicBolt):
    """Bolt that records the numbers it receives."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.received = book(config, "received")

    def process(self, tup: Tuple) -> None:
        self.received.write(f"{tup.values[0]}\n")


class Keeps(Bolt):
    """Bolt that never acks."""

    def process(self, tup: Tuple) -> None:
        self.kept = tup


_folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")


class Counted(Topology):
    """Topology without acks; lost tuples stay lost."""

    config = {Config.TOPOLOGY_STMGRS: 2, "user.folder": _folder}
    numbers = Numbers.spec()
    passes = Passes.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
    receives = Receives.spec(par=3, inputs={passes: Grouping.fields("number")})


class Acked(Topology):
    """Topology with acks, otherwise as ``Counted``."""

    config = {**Counted.config, Config.TOPOLOGY_RELIABILITY_MODE: "ATLEAST_ONCE"}
    numbers = Numbers.spec()
    passes = Passes.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
    receives = Receives.spec(par=3, inputs={passes: Grouping.fields("number")})


class Kept(Topology):
    """Topology that never comes to rest."""

    config = {**Acked.config, "topology.update.drain.secs": 1.0, "topology.max.spout.pending": 5}
    numbers = Numbers.spec()
    keeps = Keeps.spec(par=2, inputs={numbers: Grouping.SHUFFLE})
