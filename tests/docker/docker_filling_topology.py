"""A topology that fills its volume as it is told to, each order once, for the test of its bound.

    heron submit docker tests/docker/docker_filling_topology.py Filling

Whoever renames a file to ``order`` on the volume gives one: ``hidden`` writes into a folder that only its owner can
read, ``removed`` into a file that it removes at once, ``closed`` makes a folder that nobody can read. It writes
50 MB a second without an end.
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
    """Emits nothing."""

    outputs = ["n"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Nothing is ordered yet."""
        self.file: Any = None

    def next_tuple(self) -> None:
        """Obey, or go on with it."""
        if self.file is not None:
            self.file.write(b"x" * 1_000_000)
            self.file.flush()
            time.sleep(0.02)
        elif ORDER.exists():
            order = ORDER.read_text().strip()
            ORDER.unlink()
            self.obey(order)

    def obey(self, order: str) -> None:
        """Begin."""
        folder = VOLUME / order
        folder.mkdir(0o700)
        if order == "closed":
            folder.chmod(0)
            return
        self.file = (folder / "file").open("wb")
        if order == "removed":
            os.unlink(folder / "file")


class Nothing(BasicBolt):
    """Takes what never comes."""

    outputs: list[str] = []

    def process(self, tup: Any) -> None:
        """Nothing."""


class Filling(Topology):
    """As it is submitted."""

    config = Config({Config.TOPOLOGY_VOLUME_DISK: f"{BOUND_MIB}MB"})
    obeying = Obeying.spec()
    nothing = Nothing.spec(inputs={obeying: Grouping.SHUFFLE})
