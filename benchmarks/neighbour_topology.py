"""Topologies for ``benchmarks.neighbours``: one that works steadily, and three that behave badly. Submitted as it is,
so this file imports nothing here.

Arguments, as JSON: ``name``; ``kind`` (``steady``, ``crash``, ``leak``, ``print``); ``folder``, where a file of the
topology's name has how many tuples have arrived; ``rate``, tuples a second; ``most``, the megabytes of a bad one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Spout, TopologyBuilder

LEAK_BYTES = 2_000_000
LINE = "x" * 999
CRASH_AFTER = 20


class PacedSpout(Spout):
    """So many tuples a second, whatever becomes of them: what it is late with it makes up for."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """How many."""
        self.rate, self.began, self.number = config["user.rate"], time.monotonic(), 0

    def next_tuple(self) -> None:
        """Those that are due."""
        due = int((time.monotonic() - self.began) * self.rate)
        while self.number < due:
            self.number += 1
            self.emit([self.number])
        time.sleep(0.01)


class SteadyBolt(BasicBolt):
    """Counts what arrives, where all can see it."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Where."""
        path = Path(config["user.folder"], context.get_topology_name())
        self.file, self.count = os.open(path, os.O_WRONLY | os.O_CREAT), 0
        self.most_bytes = config["user.most"] * 1_000_000

    def process(self, tup: Any) -> None:
        """One more."""
        self.count += 1
        os.pwrite(self.file, b"%12d" % self.count, 0)


class CrashBolt(SteadyBolt):
    """Its process ends after a few tuples, again and again."""

    def process(self, tup: Any) -> None:
        """Perhaps the last."""
        super().process(tup)
        if self.count >= CRASH_AFTER:
            os._exit(1)


class LeakBolt(SteadyBolt):
    """Keeps what it should not, and is killed at its bound as the kernel would: so the benchmark spares its machine."""

    def process(self, tup: Any) -> None:
        """Another two megabytes, touched."""
        super().process(tup)
        self.kept = [*getattr(self, "kept", ()), b"\1" * LEAK_BYTES]
        if len(self.kept) * LEAK_BYTES >= self.most_bytes:
            os.kill(os.getpid(), signal.SIGKILL)


class PrintBolt(SteadyBolt):
    """Prints all that it has to say at its first tuple."""

    def process(self, tup: Any) -> None:
        """Lines of a thousand characters."""
        while self.count * (len(LINE) + 1) < self.most_bytes:
            print(LINE)
            super().process(tup)


KINDS: dict[str, Any] = {"steady": SteadyBolt, "crash": CrashBolt, "leak": LeakBolt, "print": PrintBolt}


def build(name: str, kind: str, folder: str, rate: float, most: int) -> TopologyBuilder:
    """A spout and the bolt of that kind."""
    builder = TopologyBuilder(name)
    builder.set_config({"user.folder": folder, "user.rate": rate, "user.most": most})
    spout = builder.add_spout("spout", PacedSpout, par=1)
    builder.add_bolt("bolt", KINDS[kind], par=1, inputs=[spout])
    return builder


if __name__ == "neighbour_topology" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
