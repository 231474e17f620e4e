"""Topology of the fault tests for containers: its output is on the shared volume, and the package has the text.

The spouts keep to a rate, so that the test can detect when the topology has caught up.

    heron submit docker FOLDER docker_fault_topology:DockerFaults -- '{"config": …, "tasks": …, "lines_per_second": …}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fault_topology import Lines, Sink, Words

from heronry import Grouping, Topology

OUTPUT = "/var/lib/heronry/out"
TEXT = "/var/lib/heronry/topology/package/northanger_abbey.txt"
BURST_SECONDS = 0.05


class PacedLines(Lines):
    """Spout that emits new lines at a fixed rate, and failed lines at once."""

    ahead = 100

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Create the folder, unless another task has."""
        Path(config["user.output"]).mkdir(exist_ok=True)
        self.per_second: float = config["user.lines_per_second"]
        super().initialize(config, context)
        self.clock, self.budget = time.monotonic(), 0.0

    def next_tuple(self) -> None:
        """Emit the lines due since the last call; lines missed in a pause are not made up for."""
        self.find_end()
        now = time.monotonic()
        self.budget = min(self.budget + (now - self.clock) * self.per_second, self.per_second * BURST_SECONDS)
        self.clock = now
        while self.again or (self.budget >= 1 and (self.end is None or self.next < self.end)):
            if self.again:
                number = self.again.popleft()
            else:
                number, self.budget = self.take_new_line(), self.budget - 1
            self.emit([number, self.lines[number % len(self.lines)], self.padding], tup_id=number)


class SharedSink(Sink):
    """Sink that writes to the folder of the spouts' progress. Its file names use times, since process ids repeat."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open a file of this process."""
        output = Path(config["user.output"])
        output.mkdir(exist_ok=True)
        self.slow_file = output / "slow"
        name = output / f"sink-{context.get_task_id()}-{time.time_ns()}"
        self.descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


_given: dict[str, Any] = json.loads(sys.argv[1]) if sys.argv[1:] and sys.argv[1].startswith("{") else {}
_tasks: dict[str, int] = _given.get("tasks", {})


class DockerFaults(Topology):
    """Topology lines -> words -> sink."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 8,
        **_given.get("config", {}),
        "user.path": TEXT,
        "user.output": _given.get("output", OUTPUT),
        "user.padding": 0,
        "user.lines_per_second": _given.get("lines_per_second", 100),
    }

    lines = PacedLines.spec(par=_tasks.get("lines", 1))
    words = Words.spec(par=_tasks.get("words", 2), inputs={lines: Grouping.SHUFFLE})
    sink = SharedSink.spec(par=_tasks.get("sink", 2), inputs={words: Grouping.fields("word")})
