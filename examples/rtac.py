"""Real-time active users (RTAC, Heron paper figure 1 and section 7.4).

    heron submit local examples/rtac.py Rtac -- OUTPUT [EVENTS_PER_SPOUT]

A distributor forwards the events of a spout as (user, bucket of time), grouped by user. Each user counter keeps the set
of users of each bucket and reports its size to the aggregator, which adds the sizes. Events are acked through both
hops. EVENTS_PER_SPOUT 0 (the default) means no limit. The aggregator writes ``OUTPUT/active-users.json`` at each tick.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Topology

USERS = 10_000
EVENTS_PER_BUCKET = 5_000


class EventSpout(Spout):
    """Emit numbered events of random users, and failed ones again."""

    outputs = ["user", "number", "kind"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start with the first event. The task id is the seed, so each start has the same events."""
        self.limit = config["user.events"]
        self.task = context.get_task_id()
        self.number = 0
        self.again: list[int] = []

    def next_tuple(self) -> None:
        """Emit one event."""
        if self.again:
            number = self.again.pop()
        elif self.limit == 0 or self.number < self.limit:
            number, self.number = self.number, self.number + 1
        else:
            return
        self.emit((self.user_of(number), number, "click"), tup_id=number)

    def user_of(self, number: int) -> str:
        """Return the user of an event, determined by task and number."""
        return f"user-{random.Random(self.task * 1_000_003 + number).randrange(USERS)}"

    def fail(self, tup_id: int) -> None:
        """Emit the event again later."""
        self.again.append(tup_id)


class DistributorBolt(Bolt):
    """Forward user and time of each event, with explicit anchors and acks."""

    outputs = ["user", "bucket"]

    def process(self, tup: Any) -> None:
        """Emit user and bucket."""
        user, number, _ = tup.values
        self.emit((user, number // EVENTS_PER_BUCKET), anchors=[tup])
        self.ack(tup)


class UserCountBolt(Bolt):
    """Keep the set of users of each bucket, and emit the sizes that changed at each tick."""

    outputs = ["task", "bucket", "users"]
    config = {"topology.tick.tuple.freq.secs": 1}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without users."""
        self.task = context.get_task_id()
        self.users: dict[int, set[str]] = defaultdict(set)
        self.changed: set[int] = set()

    def process(self, tup: Any) -> None:
        """Add the user. A repeated event changes nothing."""
        user, bucket = tup.values
        self.users[bucket].add(user)
        self.changed.add(bucket)
        self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        """Emit the sizes that changed since the last tick."""
        for bucket in sorted(self.changed):
            self.emit((self.task, bucket, len(self.users[bucket])))
        self.changed.clear()


class AggregatorBolt(BasicBolt):
    """Add the sizes of each bucket."""

    outputs: list[str] = []
    config = {"topology.tick.tuple.freq.secs": 1}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start without sizes."""
        self.file = Path(config["user.output"], "active-users.json")
        self.by_bucket: dict[int, dict[int, int]] = defaultdict(dict)

    def process(self, tup: Any) -> None:
        """Replace the size that a counter reported for a bucket."""
        task, bucket, users = tup.values
        self.by_bucket[bucket][task] = users

    def process_tick(self, tup: Any) -> None:
        """Replace the file of sums atomically."""
        sums = {bucket: sum(parts.values()) for bucket, parts in sorted(self.by_bucket.items())}
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(sums))
        os.replace(temporary, self.file)


class Rtac(Topology):
    """events -> distributor -> user counts -> aggregate."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # relative to the shell that submits
        "user.events": int(_arguments.get(1, 0)),
    }

    events = EventSpout.spec()
    distributor = DistributorBolt.spec(inputs={events: Grouping.SHUFFLE})
    user_counts = UserCountBolt.spec(par=2, inputs={distributor: Grouping.fields("user")})
    aggregate = AggregatorBolt.spec(inputs={user_counts: Grouping.GLOBAL})
