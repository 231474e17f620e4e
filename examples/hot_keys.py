"""Count keys of which one is very frequent, with partial key grouping and a bolt that merges partial counts.

    heron submit local examples/hot_keys.py HotKeys -- OUTPUT [EVENTS]

Half of all events are of one page. With fields grouping one task would receive half of the stream, whatever the
parallelism. With ``Grouping.partial_key`` each page has two tasks, and an emitter sends to the one that has received
less from it. So two tasks hold a part of a page's count, and ``Merge`` reads their increments with fields grouping and
adds them. ``Count`` keeps events unacked until it emits their increment, anchored to them, so nothing is lost when a
task dies. ``OUTPUT/pages.json`` has the sums, and ``OUTPUT/share-<task>.txt`` the events of each counting task.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Topology

HOT = "/"
PAGES = 1000


def page(number: int) -> str:
    """Return the page of an event. Every second event is of the start page."""
    return HOT if number % 2 else f"/page/{random.Random(number).randrange(PAGES)}"


class Events(Spout):
    """Emit EVENTS numbered events, and failed ones again."""

    outputs = ["page"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with the first event."""
        self.number, self.events = 0, config["user.events"]
        self.again: deque[int] = deque()

    def next_tuple(self) -> None:
        """Emit one event."""
        if self.again:
            number = self.again.popleft()
        elif self.number < self.events:
            number, self.number = self.number, self.number + 1
        else:
            return
        self.emit([page(number)], tup_id=number)

    def fail(self, tup_id: int, reason: Any) -> None:
        """Emit the event again later."""
        self.again.append(tup_id)


class Count(Bolt):
    """Count a part of each page, and emit the increments with each tick."""

    outputs = ["page", "increment"]
    config = {"topology.tick.tuple.freq.secs": 0.2}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without counts."""
        self.waiting: dict[str, list[Any]] = {}
        self.share = 0
        self.file = Path(config["user.output"], f"share-{context.get_task_id()}.txt")

    def process(self, tup: Any) -> None:
        """Keep the event unacked until its increment is emitted."""
        self.waiting.setdefault(tup.values[0], []).append(tup)
        self.share += 1

    def process_tick(self, tup: Any) -> None:
        """Emit one increment for each page, anchored to its events."""
        for name, tuples in self.waiting.items():
            self.emit([name, len(tuples)], anchors=tuples)
            for each in tuples:
                self.ack(each)
        self.waiting = {}
        self.file.write_text(str(self.share))


class Merge(BasicBolt):
    """Add the increments of each page."""

    outputs: list[str] = []
    config = {"topology.tick.tuple.freq.secs": 0.5}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without sums."""
        self.sums: Counter[str] = Counter()
        self.file = Path(config["user.output"], "pages.json")

    def process(self, tup: Any) -> None:
        """Add one increment."""
        self.sums[tup.values[0]] += tup.values[1]

    def process_tick(self, tup: Any) -> None:
        """Replace the file of sums atomically."""
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.sums))
        os.replace(temporary, self.file)


class HotKeys(Topology):
    """events -> counts -> merge."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # relative to the shell that submits
        "user.events": int(_arguments.get(1, 100_000)),
    }

    events = Events.spec()
    counts = Count.spec(par=4, inputs={events: Grouping.partial_key("page")})
    merge = Merge.spec(inputs={counts: Grouping.fields("page")})
