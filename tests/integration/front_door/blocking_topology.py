"""Topology of blocking user code: spouts that never return or sleep, and a bolt that emits and then takes long.

The argument is a folder in which the sink records the tuples it receives and their arrival times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from heronry import Bolt, Grouping, Spout, Topology

SLEEP_SECONDS = 0.3
STUCK_SECONDS = 24.0
TIMEOUT_SECONDS = 12


class Writer:
    """Writer of JSON lines into the folder."""

    def open(self, config: dict[str, Any], name: str) -> None:
        self.file = (Path(config["user.folder"]) / f"{name}.jsonl").open("a")

    def write(self, **values: Any) -> None:
        self.file.write(json.dumps(values) + "\n")
        self.file.flush()


class Endless(Spout):
    """Spout whose ``next_tuple`` loops indefinitely and polls."""

    outputs = ["kind", "at"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.writer, self.n, self.acked = Writer(), 0, 0
        self.writer.open(config, "endless")

    def next_tuple(self) -> None:
        while True:
            time.sleep(0.005)
            self.n += 1
            self.emit(["endless", time.time()], tup_id=self.n)
            self.poll()

    def ack(self, tup_id: Any) -> None:
        self.acked += 1
        if self.acked % 100 == 0:
            self.writer.write(acked=self.acked)


class Sleepy(Spout):
    """Spout that emits and then sleeps in each call."""

    outputs = ["kind", "at"]

    def next_tuple(self) -> None:
        self.emit(["sleepy", time.time()])
        time.sleep(SLEEP_SECONDS)


class Once(Spout):
    """Spout that emits one tuple for the slow bolt and one that queues after it."""

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.writer, self.left = Writer(), [2, 1]
        self.writer.open(config, "once")

    def next_tuple(self) -> None:
        if self.left:
            n = self.left.pop()
            self.emit([n], tup_id=n)

    def fail(self, tup_id: Any, reason: Any) -> None:
        self.writer.write(id=tup_id, kind=reason.kind, component=reason.component, message=reason.message)


class Stuck(Bolt):
    """Bolt that emits and acks its first tuple, and then takes long over it."""

    outputs = ["kind", "at"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.writer = Writer()
        self.writer.open(config, "stuck")

    def process(self, tup: Any) -> None:
        if tup["n"] > 1:
            self.ack(tup)
            return
        for _ in range(3):
            self.emit(["stuck", time.time()], anchors=[tup])
        self.ack(tup)
        time.sleep(STUCK_SECONDS)
        self.writer.write(returned=time.time())


class Sink(Bolt):
    """Bolt that records the arrival of each tuple."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.writer = Writer()
        self.writer.open(config, f"sink-{os.getpid()}")

    def process(self, tup: Any) -> None:
        self.writer.write(kind=tup["kind"], at=tup["at"], arrived=time.time())
        self.ack(tup)


class Blocking(Topology):
    """Topology of all spouts and bolts of this module."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.max.spout.pending": 500,
        "topology.message.timeout.secs": TIMEOUT_SECONDS,
        "user.folder": sys.argv[1] if len(sys.argv) > 1 else "",
    }
    endless = Endless.spec()
    sleepy = Sleepy.spec()
    once = Once.spec()
    stuck = Stuck.spec(inputs={once: Grouping.SHUFFLE})
    sink = Sink.spec(inputs=dict.fromkeys((endless, sleepy, stuck), Grouping.SHUFFLE))
