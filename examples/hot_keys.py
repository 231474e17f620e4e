"""Counting keys of which one is far more frequent than all others: partial key grouping, and the step that merges.

    heron submit local examples/hot_keys.py HotKeys -- OUTPUT [EVENTS]

Half of all events are of one page. With fields grouping one task would get half of everything, however many there are;
with ``Grouping.partial_key`` each page has two tasks, and every emitter takes the one that has got less from it. So two
tasks hold a part of a page's count, and ``Merge`` adds the parts: it reads their increments with fields grouping. A
count keeps the events it stands for *unacked* until it hands its increment on, anchored to them: nothing is lost when a
task dies. ``OUTPUT/pages.json`` has the sums, ``OUTPUT/share-<task>.txt`` how many events each counting task got.
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
    """The page of an event: every second one is the start page."""
    return HOT if number % 2 else f"/page/{random.Random(number).randrange(PAGES)}"


class Events(Spout):
    """EVENTS numbered events; a failed one is emitted again."""

    outputs = ["page"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """From the first event on."""
        self.number, self.events = 0, config["user.events"]
        self.again: deque[int] = deque()

    def next_tuple(self) -> None:
        """One event."""
        if self.again:
            number = self.again.popleft()
        elif self.number < self.events:
            number, self.number = self.number, self.number + 1
        else:
            return
        self.emit([page(number)], tup_id=number)

    def fail(self, tup_id: int, reason: Any) -> None:
        """Once more."""
        self.again.append(tup_id)


class Count(Bolt):
    """Counts its part of each page; hands the increments on with each tick."""

    outputs = ["page", "increment"]
    config = {"topology.tick.tuple.freq.secs": 0.2}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Nothing is counted yet."""
        self.waiting: dict[str, list[Any]] = {}
        self.share = 0
        self.file = Path(config["user.output"], f"share-{context.get_task_id()}.txt")

    def process(self, tup: Any) -> None:
        """Keep it: it is acked with the increment that it is part of."""
        self.waiting.setdefault(tup.values[0], []).append(tup)
        self.share += 1

    def process_tick(self, tup: Any) -> None:
        """One increment for each page."""
        for name, tuples in self.waiting.items():
            self.emit([name, len(tuples)], anchors=tuples)
            for each in tuples:
                self.ack(each)
        self.waiting = {}
        self.file.write_text(str(self.share))


class Merge(BasicBolt):
    """Adds the parts of each page."""

    outputs: list[str] = []
    config = {"topology.tick.tuple.freq.secs": 0.5}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """No sums yet."""
        self.sums: Counter[str] = Counter()
        self.file = Path(config["user.output"], "pages.json")

    def process(self, tup: Any) -> None:
        """One increment."""
        self.sums[tup.values[0]] += tup.values[1]

    def process_tick(self, tup: Any) -> None:
        """A reader sees the old sums or the new, never a part."""
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.sums))
        os.replace(temporary, self.file)


class HotKeys(Topology):
    """events -> counts -> merge."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # as the shell that submits sees it
        "user.events": int(_arguments.get(1, 100_000)),
    }

    events = Events.spec()
    counts = Count.spec(par=4, inputs={events: Grouping.partial_key("page")})
    merge = Merge.spec(inputs={counts: Grouping.fields("page")})
