"""A bolt with dead letters that obeys its records, compared with one that never got the failing ones."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from heron_runtime.model.ids import DEFAULT_STREAM
from heron_runtime.model.topology import GroupingKind, GroupingSpec
from heronry.api.component import Bolt, Spout
from heronry.api.dead_letters import DeadLetter
from tests.support.harness.executors import SHUFFLE, Part, fields
from tests.support.harness.looping_spout import Shell
from tests.support.harness.stateful_executors import StatefulExecutorHarness

KEYS = 3
DIRECT = GroupingSpec(GroupingKind.DIRECT)
CUSTOM = GroupingSpec(GroupingKind.CUSTOM, (), "user:ByNumber")
SPOUT, BOLT = 1, 2
SINKS = (3, 4)


class Record(NamedTuple):
    """Actions of ``process``, in order, and its outcome: success, an exception, or a failed tuple."""

    key: int
    number: int
    acts: tuple[str, ...]
    end: str


class ByNumber:
    """Custom grouping that selects by the second value; its own state need not be undone."""

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Any) -> None:
        self.tasks = list(target_tasks)

    def choose_tasks(self, values: Any) -> list[int]:
        return [self.tasks[values[1] % len(self.tasks)]]


class Source(Spout):
    records: tuple[Record, ...] = ()
    batches: tuple[int, ...] = (1,)

    def initialize(self, config: Any, context: Any) -> None:
        self.at = self.calls = 0

    def next_tuple(self) -> None:
        size = self.batches[self.calls % len(self.batches)]
        self.calls += 1
        self.emit_many(self.records[self.at : self.at + size])
        self.at += size


class Obeys(Bolt):
    """Bolt that performs the actions of its records."""

    shell: Shell

    def process(self, tup: Any) -> None:
        record = Record(*tup.values)
        for place, act in enumerate(record.acts):
            self.act(act, record, 100 * record.number + place)
        if record.end == "raise":
            raise ValueError(f"record {record.number}")
        if record.end == "fail":
            self.fail(tup, f"record {record.number}")

    def act(self, act: str, record: Record, value: int) -> None:
        key = record.key
        match act:
            case "set":
                self.keyed[key] = value
            case "put":
                self.keyed.put(key, [value], ttl=1.0 + value % 7)
            case "append":
                found = self.keyed.setdefault(key, [])
                if isinstance(found, list):
                    found.append(value)
            case "delete":
                self.keyed.pop(key, None)
            case "own":
                self.state.setdefault("seen", []).append(value)
            case "own set":
                self.state[key] = value
            case "own clear":
                self.state.clear()
            case "emit":
                self.emit([key, value])
            case "emit kept":
                self.emit([key, self.keyed.get(key)])
            case "many":
                self.emit_many([[key, value], [key, value + 1]], stream="keyed")
            case "direct":
                self.emit([key, value], stream="direct", direct_task=SINKS[value % 2])
            case "custom":
                self.emit([key, value], stream="custom")
            case "flush":  # the timer's, in the middle of the call
                self.shell.flush()
            case "last":  # so long that each emit checks for other work
                self.shell.world.clock.now += 0.05


ACTS = (
    "set", "put", "append", "delete", "own", "own set", "own clear",
    "emit", "emit kept", "many", "direct", "custom", "flush", "last",
)  # fmt: skip


class Manual(Obeys):
    dead_letters = "bad"
    auto_ack = False

    def process(self, tup: Any) -> None:
        super().process(tup)
        self.ack(tup)


class Basic(Obeys):
    dead_letters = "bad"
    auto_ack = auto_anchor = True


class Sink(Bolt):
    auto_ack = True

    def initialize(self, config: Any, context: Any) -> None:
        self.rows: list[Any] = []

    def process(self, tup: Any) -> None:
        self.rows.append((tup.stream, tup.values))


class Outcome(NamedTuple):
    """Final state of a run.

    State by key, ends of entries, the task's own state, the order of each sink's input, dead letters, counters.
    """

    keyed: dict[Any, Any]
    ends: dict[Any, float]
    own: dict[Any, Any]
    read: list[list[Any]]
    letters: list[DeadLetter]
    counters: dict[str, float]


def run(records: list[Record], basic: bool, siblings: bool, batches: tuple[int, ...]) -> Outcome:
    """Run the records. ``siblings``: each sink reads several streams, whose relative order is kept."""
    source = type("Source", (Source,), {"records": tuple(records), "batches": batches})
    streams = {name: ["key", "value"] for name in (DEFAULT_STREAM, "keyed", "direct", "custom")}
    read = {DEFAULT_STREAM: SHUFFLE, "keyed": fields("key"), "direct": DIRECT, "custom": CUSTOM}
    parts = {
        "s": Part(source, 1, {DEFAULT_STREAM: Record._fields}),
        "b": Part(
            Basic if basic else Manual, 1, {**streams, "bad": DeadLetter._fields},
            [("s", DEFAULT_STREAM, fields("key"))], direct=["direct"],
        ),
    }  # fmt: skip
    if siblings:
        parts["all"] = Part(Sink, 2, {}, [("b", stream, how) for stream, how in read.items()])
    else:
        tasks = iter(("all", "other", "third", "fourth"))
        for stream, how in {"direct": DIRECT, **read}.items():
            parts[next(tasks)] = Part(Sink, 2, {}, [("b", stream, how)])
    parts["letters"] = Part(Sink, 1, {}, [("b", "bad", SHUFFLE)])
    world = StatefulExecutorHarness(parts, classes={"user:ByNumber": ByNumber})
    bolt: Any = world.components[BOLT]
    bolt.shell = Shell(world, BOLT)
    world.run()
    assert [e.failed for e in world.executors.values()] == [None] * len(world.executors)
    kept = world.executors[BOLT].task.state
    kept.by_key.check()
    letters = [DeadLetter(*values) for _, values in world.objects("letters")[0].rows]
    sinks = [sink.rows for name in parts if name not in ("s", "b", "letters") for sink in world.objects(name)]
    restored: dict[Any, Any] = defaultdict(dict)
    for block in kept.by_key.take(1, 0):
        restored |= {row[0]: row[1] for row in block.rows if len(row) > 1}
    assert restored == dict(kept.by_key), "what a checkpoint holds"
    ends = dict(kept.by_key._expiry.times)
    return Outcome(dict(kept.by_key), ends, dict(kept.own), sinks, letters, world.telemetry[BOLT].counters)
