"""Topology of a steady spout and a counting bolt, for tests of many topologies and of container limits.

    heron submit docker tests/docker/docker_small_topology.py Small -- '{"crash": …, "hog": …, "config": …}'

The bolt writes ``[seconds, tuples]`` to ``out/count`` on the topology's volume, once per second. With ``crash`` it ends
its process after this many tuples; with ``hog`` it allocates this many MiB with each tuple. ``ballast`` adds this many
bytes to the definition.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

COUNT = Path("/var/lib/heronry/out/count")
BURST = 10


class Steady(Spout):
    """Spout of ``user.per_second`` tuples per second, BURST at a time.

    Each flush costs a message on four streams (1.4 ms of CPU in total), regardless of its number of tuples. Sent one by
    one, 200 tuples per second take a third of a core, and five such topologies all of a small machine.
    """

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start the clock."""
        self.per_second = config["user.per_second"]
        self.began, self.n = time.monotonic(), 0

    def next_tuple(self) -> None:
        """Emit the tuples that are due."""
        due = int((time.monotonic() - self.began) * self.per_second) // BURST * BURST
        while self.n < due:
            self.n += 1
            self.emit([self.n], tup_id=self.n)


class Count(BasicBolt):
    """Bolt that counts, and crashes or allocates memory if configured."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start at zero."""
        self.crash, self.hog = config["user.crash"], config["user.hog"]
        self.n, self.write_at, self.held = 0, 0.0, []
        COUNT.parent.mkdir(exist_ok=True)

    def process(self, tup: Any) -> None:
        """Count one tuple."""
        self.n += 1
        if self.hog:
            self.held.append(b"x" * (self.hog << 20))
        if self.crash and self.n >= self.crash:
            os._exit(3)
        if time.monotonic() >= self.write_at:
            self.write_at = time.monotonic() + 1
            temporary = COUNT.with_suffix(".new")
            temporary.write_text(json.dumps([time.time(), self.n]))
            os.replace(temporary, COUNT)


_given: dict[str, Any] = json.loads(sys.argv[1]) if sys.argv[1:] and sys.argv[1].startswith("{") else {}


class Small(Topology):
    """Topology steady -> count."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.per_second": _given.get("per_second", 200),
        "user.crash": _given.get("crash", 0),
        "user.hog": _given.get("hog", 0),
        "user.ballast": "x" * _given.get("ballast", 0),
        **_given.get("config", {}),
    }

    steady = Steady.spec()
    count = Count.spec(inputs={steady: Grouping.SHUFFLE})
