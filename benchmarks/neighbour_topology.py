"""Topologies for ``benchmarks.neighbours``: one that works steadily, and three that misbehave.

The file is submitted alone, so it imports nothing of its folder. Arguments, as JSON: ``name``; ``kind`` (``steady``,
``crash``, ``leak``, ``print``); ``folder``, in which a file of the topology's name has the number of tuples that have
arrived; ``rate``, tuples per second; ``most``, the megabytes of a misbehaving one.
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
    """Spout at a fixed rate that makes up for delays."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the rate."""
        self.rate, self.began, self.number = config["user.rate"], time.monotonic(), 0

    def next_tuple(self) -> None:
        """Emit the tuples that are due."""
        due = int((time.monotonic() - self.began) * self.rate)
        while self.number < due:
            self.number += 1
            self.emit([self.number])
        time.sleep(0.01)


class SteadyBolt(BasicBolt):
    """Bolt that counts arrivals in a shared file."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open the file."""
        path = Path(config["user.folder"], context.get_topology_name())
        self.file, self.count = os.open(path, os.O_WRONLY | os.O_CREAT), 0
        self.most_bytes = config["user.most"] * 1_000_000

    def process(self, tup: Any) -> None:
        """Count one tuple."""
        self.count += 1
        os.pwrite(self.file, b"%12d" % self.count, 0)


class CrashBolt(SteadyBolt):
    """Bolt whose process ends after every few tuples."""

    def process(self, tup: Any) -> None:
        """Count one tuple, and possibly end."""
        super().process(tup)
        if self.count >= CRASH_AFTER:
            os._exit(1)


class LeakBolt(SteadyBolt):
    """Bolt that leaks memory and ends at its limit, as the kernel would enforce it, to spare the machine."""

    def process(self, tup: Any) -> None:
        """Allocate and touch another two megabytes."""
        super().process(tup)
        self.kept = [*getattr(self, "kept", ()), b"\1" * LEAK_BYTES]
        if len(self.kept) * LEAK_BYTES >= self.most_bytes:
            os.kill(os.getpid(), signal.SIGKILL)


class PrintBolt(SteadyBolt):
    """Bolt that prints all its output at the first tuple."""

    def process(self, tup: Any) -> None:
        """Print lines of a thousand characters."""
        while self.count * (len(LINE) + 1) < self.most_bytes:
            print(LINE)
            super().process(tup)


KINDS: dict[str, Any] = {"steady": SteadyBolt, "crash": CrashBolt, "leak": LeakBolt, "print": PrintBolt}


def build(name: str, kind: str, folder: str, rate: float, most: int) -> TopologyBuilder:
    """Return a spout and the bolt of that kind."""
    builder = TopologyBuilder(name)
    builder.set_config({"user.folder": folder, "user.rate": rate, "user.most": most})
    spout = builder.add_spout("spout", PacedSpout, par=1)
    builder.add_bolt("bolt", KINDS[kind], par=1, inputs=[spout])
    return builder


if __name__ == "neighbour_topology" and len(sys.argv) > 1:  # at submit; an instance has no arguments
    benchmark = build(**json.loads(sys.argv[1]))
