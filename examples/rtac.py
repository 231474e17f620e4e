"""Real-time active users (RTAC, Heron paper figure 1 and section 7.4).

    heron submit local examples/rtac.py Rtac -- OUTPUT [EVENTS_PER_SPOUT]

A spout of events feeds a distributor, which passes (user, bucket of time) on by user; each user counter keeps the set
of users it saw per bucket and tells the aggregator how many there are; the aggregator sums over the counters. Every
event is acked through both hops. EVENTS_PER_SPOUT 0 (the default) means without end. The aggregator writes
``OUTPUT/active-users.json`` on every tick.
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
    """Events of random users, numbered; a failed event is emitted again."""

    outputs = ["user", "number", "kind"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """The same events at every start: the seed is the task."""
        self.limit = config["user.events"]
        self.task = context.get_task_id()
        self.number = 0
        self.again: list[int] = []

    def next_tuple(self) -> None:
        """One event, if there is one."""
        if self.again:
            number = self.again.pop()
        elif self.limit == 0 or self.number < self.limit:
            number, self.number = self.number, self.number + 1
        else:
            return
        self.emit((self.user_of(number), number, "click"), tup_id=number)

    def user_of(self, number: int) -> str:
        """The user of an event, a fixed function of task and number."""
        return f"user-{random.Random(self.task * 1_000_003 + number).randrange(USERS)}"

    def fail(self, tup_id: int) -> None:
        """Once more."""
        self.again.append(tup_id)


class DistributorBolt(Bolt):
    """Reads the event and passes on who was active when; anchors and acks by hand."""

    outputs = ["user", "bucket"]

    def process(self, tup: Any) -> None:
        """One event in, one activity out."""
        user, number, _ = tup.values
        self.emit((user, number // EVENTS_PER_BUCKET), anchors=[tup])
        self.ack(tup)


class UserCountBolt(Bolt):
    """The set of users of each bucket; tells the aggregator on a tick how large its sets are."""

    outputs = ["task", "bucket", "users"]
    config = {"topology.tick.tuple.freq.secs": 1}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """No users yet."""
        self.task = context.get_task_id()
        self.users: dict[int, set[str]] = defaultdict(set)
        self.changed: set[int] = set()

    def process(self, tup: Any) -> None:
        """Remember the user; an event that comes twice changes nothing."""
        user, bucket = tup.values
        self.users[bucket].add(user)
        self.changed.add(bucket)
        self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        """What changed since the last tick."""
        for bucket in sorted(self.changed):
            self.emit((self.task, bucket, len(self.users[bucket])))
        self.changed.clear()


class AggregatorBolt(BasicBolt):
    """Sums the counters' numbers for each bucket."""

    outputs: list[str] = []
    config = {"topology.tick.tuple.freq.secs": 1}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Nothing yet."""
        self.file = Path(config["user.output"], "active-users.json")
        self.by_bucket: dict[int, dict[int, int]] = defaultdict(dict)

    def process(self, tup: Any) -> None:
        """The newest number of one counter for one bucket."""
        task, bucket, users = tup.values
        self.by_bucket[bucket][task] = users

    def process_tick(self, tup: Any) -> None:
        """Let others see the sums."""
        sums = {bucket: sum(parts.values()) for bucket, parts in sorted(self.by_bucket.items())}
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(sums))
        os.replace(temporary, self.file)


class Rtac(Topology):
    """events -> distributor -> user counts -> aggregate."""

    _arguments = dict(enumerate(sys.argv[1:]))
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "user.output": os.path.abspath(_arguments.get(0, ".")),  # as the shell that submits sees it
        "user.events": int(_arguments.get(1, 0)),
    }

    events = EventSpout.spec()
    distributor = DistributorBolt.spec(inputs={events: Grouping.SHUFFLE})
    user_counts = UserCountBolt.spec(par=2, inputs={distributor: Grouping.fields("user")})
    aggregate = AggregatorBolt.spec(inputs={user_counts: Grouping.GLOBAL})
