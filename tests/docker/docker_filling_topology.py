"""Topology that fills its volume on request, for the test of the volume's size limit.

    heron submit docker tests/docker/docker_filling_topology.py Filling

A request is a file renamed to ``order`` on the volume, and is carried out once: ``hidden`` writes into a folder that
only its owner can read, ``removed`` into a file that it removes at once, ``closed`` creates a folder without read
permission. The topology writes 50 MB per second without end.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Config, Grouping, Spout, Topology

VOLUME = Path("/var/lib/heronry")
ORDER = VOLUME / "order"
BOUND_MIB = 32


class Obeying(Spout):
    """Spout that emits nothing and follows requests."""

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without a request."""
        self.file: Any = None

    def next_tuple(self) -> None:
        """Read a request, or continue with the current one."""
        if self.file is not None:
            self.file.write(b"x" * 1_000_000)
            self.file.flush()
            time.sleep(0.02)
        elif ORDER.exists():
            order = ORDER.read_text().strip()
            ORDER.unlink()
            self.obey(order)

    def obey(self, order: str) -> None:
        """Begin a request."""
        folder = VOLUME / order
        folder.mkdir(0o700)
        if order == "closed":
            folder.chmod(0)
            return
        self.file = (folder / "file").open("wb")
        if order == "removed":
            os.unlink(folder / "file")


class Nothing(BasicBolt):
    """Bolt without input."""

    outputs: list[str] = []

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class Filling(Topology):
    """Topology of the filling spout."""

    config = Config({Config.TOPOLOGY_VOLUME_DISK: f"{BOUND_MIB}MB"})
    obeying = Obeying.spec()
    nothing = Nothing.spec(inputs={obeying: Grouping.SHUFFLE})
