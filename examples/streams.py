"""Several streams and direct grouping: bad readings have a stream of their own, good ones go to a chosen task.

    heron submit local examples/streams.py Sensors -- OUTPUT [READINGS]

The router names the archive task of each tuple, by the number of the sensor. This needs a direct stream.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Stream, Topology


class SensorSpout(Spout):
    """Emit readings of 16 sensors. Every tenth reading is broken and goes to the stream ``broken``."""

    outputs = [Stream(fields=["sensor", "value"]), Stream(fields=["sensor", "text"], name="broken")]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with reading 0."""
        self.number, self.limit = 0, config["user.readings"]
        self.again: list[int] = []

    def next_tuple(self) -> None:
        """Emit one reading."""
        if self.again:
            number = self.again.pop()
        elif self.number < self.limit:
            number, self.number = self.number, self.number + 1
        else:
            return
        if number % 10 == 9:
            self.emit([number % 16, f"unreadable {number}"], tup_id=number, stream="broken")
        else:
            self.emit([number % 16, number], tup_id=number)

    def fail(self, tup_id: int) -> None:
        """Emit the reading again later."""
        self.again.append(tup_id)


class RouterBolt(Bolt):
    """Send the readings of each sensor to one archive task."""

    outputs = [Stream(fields=["sensor", "value"], name="to_archive", direct=True)]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Look up the archive tasks."""
        self.tasks = context.get_component_tasks("archive")

    def process(self, tup: Any) -> None:
        """Choose the task by the sensor."""
        sensor, _ = tup.values
        self.emit(tup.values, stream="to_archive", anchors=[tup], direct_task=self.tasks[sensor % len(self.tasks)])
        self.ack(tup)


class ArchiveBolt(BasicBolt):
    """Append tuples to a file of the task."""

    outputs: list[str] = []

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Open one file for each task, line buffered."""
        name = f"{context.get_component_id()}-{context.get_task_id()}.txt"
        self.file = Path(config["user.output"], name).open("a", buffering=1)

    def process(self, tup: Any) -> None:
        """Write one line."""
        self.file.write(f"{tup.values[0]} {tup.values[1]}\n")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class Sensors(Topology):
    """readings -> router -> archive (direct); broken readings -> bin."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # relative to the shell that submits
        "user.readings": int(_arguments.get(1, 1000)),
    }

    sensors = SensorSpout.spec()
    router = RouterBolt.spec(par=2, inputs={sensors: Grouping.SHUFFLE})
    archive = ArchiveBolt.spec(par=3, inputs={router["to_archive"]: Grouping.DIRECT})
    bin = ArchiveBolt.spec(inputs={sensors["broken"]: Grouping.GLOBAL})
