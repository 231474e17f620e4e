"""Topology whose bolt records what it can read of every process."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Grouping, Spout, Topology

LOOKS: dict[str, Callable[[str], Any]] = {
    "environ": lambda process: Path(process, "environ").read_bytes(),
    "mem": lambda process: Path(process, "mem").open("rb").close(),
    "maps": lambda process: Path(process, "maps").read_text(),
    "fd": lambda process: [os.readlink(entry) for entry in Path(process, "fd").iterdir()],
    "cwd": lambda process: os.readlink(f"{process}/cwd"),
}


class Numbers(Spout):
    """Spout that emits nothing."""

    outputs = ["number"]

    def next_tuple(self) -> None:
        """Emit nothing."""


class Spy(BasicBolt):
    """Bolt that inspects processes when it starts."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Record the title of each process of this topology and which of its data could be read."""
        found: dict[str, list[str]] = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                title = (process / "cmdline").read_bytes().strip(b"\0 ").decode(errors="replace")
            except OSError:
                continue
            if title.startswith(f"heron:{context.get_topology_name()}:") and process.name != str(os.getpid()):
                found[title.rpartition(":")[2]] = self.seen_of(process)
        if (child := os.fork()) == 0:
            time.sleep(600)
        found["child"] = self.seen_of(Path(f"/proc/{child}"))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        file = Path(config["user.folder"], f"{os.getpid()}.json")
        file.with_suffix(".part").write_text(json.dumps({"seen": found, "environ": dict(os.environ)}))
        file.with_suffix(".part").rename(file)

    def seen_of(self, process: Path) -> list[str]:
        """Return the names of what can be read of a process."""
        return [name for name, look in LOOKS.items() if self.shows(look, process)]

    @staticmethod
    def shows(look: Callable[[str], Any], process: Path) -> bool:
        """Return True if it can be read."""
        try:
            look(str(process))
        except OSError:
            return False
        return True

    def process(self, tup: Any) -> None:
        """Ignore the tuple."""


class Spying(Topology):
    """Topology of the spying bolt. The argument is the folder."""

    config = {"user.folder": sys.argv[1] if len(sys.argv) > 1 else ""}
    numbers = Numbers.spec()
    spy = Spy.spec(inputs={numbers: Grouping.SHUFFLE})
