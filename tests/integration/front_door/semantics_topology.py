"""Topologies that exercise the API's promises: each case is a few tuples, and tasks record what they see.

    heron submit local semantics_topology.py Semantics -- FOLDER
    heron submit local semantics_topology.py AtMostOnce -- FOLDER

Every task appends JSON lines to ``FOLDER/<component>-<task>.jsonl``. The spout ``cases`` sends each case once; its
message ids name the case.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from heronry import BasicBolt, BatchBolt, Bolt, Grouping, Spout, Stream, Topology
from heronry.api.hooks import TaskHook
from heronry.api.metrics import CountMetric, GaugeMetric, LatencyMetric, MeanMetric, MultiCountMetric

FOLDER = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "."
PER_GROUPING = 40
ODD_VALUES: list[Any] = [
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC), date(1817, 12, 20), Decimal("1.10"), {1, 2, 3}, frozenset({"a"}),
    (1, (2,)), 3 + 4j, 1 << 200, True, 1, 1.0, None, b"\x00\xff", "\u00fcber", {"key": [1, (2, 3)]}, float("inf"),
]  # fmt: skip


class Diary:
    """Mixin that appends JSON lines to the task's own file."""

    def open_diary(self, config: dict[str, Any], context: Any) -> None:
        name = f"{context.get_component_id()}-{context.get_task_id()}.jsonl"
        self.diary = Path(config["user.folder"], name).open("a", buffering=1)  # noqa: SIM115  # open as long as the task lives

    def write(self, **what: Any) -> None:
        self.diary.write(json.dumps(what) + "\n")


class Cases(Diary, Spout):
    """Spout that emits each case once, one tuple per call, and records every verdict."""

    outputs = [Stream(fields=["case"]), Stream(fields=["number"], name="numbers"), Stream(fields=["value"], name="odd")]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.work = [("cases", case) for case in CASES]
        self.work += [("numbers", number) for number in range(PER_GROUPING)]
        self.work += [("odd", place) for place in range(len(ODD_VALUES))]
        self.work.reverse()

    def next_tuple(self) -> None:
        if not self.work:
            return
        kind, what = self.work.pop()
        if kind == "numbers":
            tasks = self.emit([what], tup_id=f"number {what}", stream="numbers", need_task_ids=True)
            self.write(number=what, tasks=sorted(tasks or ()))
        elif kind == "odd":
            self.emit([ODD_VALUES[what]], tup_id=f"odd {what}", stream="odd")
        elif what == "double":
            self.emit([what], tup_id="double 1")
            self.emit([what], tup_id="double 2")
        else:
            self.emit([what], tup_id=what)

    def ack(self, tup_id: str) -> None:
        self.write(acked=tup_id)

    def fail(self, tup_id: str, reason: Any) -> None:
        self.write(failed=tup_id, kind=reason.kind, component=reason.component, task=reason.task,
                   message=reason.message, traceback=reason.traceback, elapsed_ms=reason.elapsed_ms)  # fmt: skip


CASES = (
    "fail", "fail with exception", "raise", "never", "unanchored", "anchored", "double", "auto ack", "ack twice",
    "late anchor", "batch raise", "batch fine", "batch fail", "hooked", "restart",
)  # fmt: skip


class Judge(Diary, Bolt):
    """Bolt that acks and fails explicitly, case by case."""

    outputs = [Stream(fields=["case"], name="doomed")]
    config = {"topology.on.exception": "fail"}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.waiting: list[Any] = []

    def process(self, tup: Any) -> None:
        case = tup["case"]
        if case == "fail":
            self.fail(tup, "it is not to my taste")
        elif case == "fail with exception":
            self.fail(tup, LookupError("handed over"))
        elif case == "never":
            self.kept = tup
        elif case == "unanchored":
            self.emit([case], stream="doomed")
            self.ack(tup)
        elif case == "anchored":
            self.emit([case], stream="doomed", anchors=[tup])
            self.ack(tup)
        elif case == "double":
            self.waiting.append(tup)
            if len(self.waiting) == 2:
                self.emit([case], stream="doomed", anchors=self.waiting)
                for one in self.waiting:
                    self.ack(one)
        elif case == "late anchor":
            self.ack(tup)
            try:
                self.emit([case], stream="doomed", anchors=[tup])
            except ValueError as error:
                self.write(refused=str(error))
        else:
            self.ack(tup)
            if case == "ack twice":
                self.ack(tup)
                self.fail(tup, "too late")


class Doomed(Bolt):
    """Bolt that fails every tuple."""

    def process(self, tup: Any) -> None:
        self.fail(tup, f"doomed {tup['case']}")


class Raiser(BasicBolt):
    """Bolt that raises in one case; all other tuples are acked automatically."""

    def process(self, tup: Any) -> None:
        if tup["case"] == "raise":
            self.at_fault()

    def at_fault(self) -> None:
        raise ZeroDivisionError("the user's own fault")


class Batcher(Diary, BatchBolt):
    """Batch bolt; a batch that raises fails its open tuples, and the rest are acked."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)

    def process_batch(self, tuples: Any) -> None:
        for tup in tuples:
            self.write(case=tup["case"])
            if tup["case"] == "batch fail":
                self.fail(tup, "one of a batch")
            elif tup["case"] != "batch raise":
                self.ack(tup)
        if "batch raise" in tuples.column("case"):
            raise ArithmeticError("the whole batch")


class Fragile(Diary, BasicBolt):
    """Bolt that restarts on its exception, in a new process."""

    config = {"topology.on.exception": "restart"}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.write(pid=os.getpid())

    def process(self, tup: Any) -> None:
        if tup["case"] == "restart":
            raise MemoryError("start me again")


class Receiver(Diary, BasicBolt):
    """Bolt that records which number reached which task, and from which."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.container = context.get_container_id()
        self.write(container=self.container, tasks=context.get_component_tasks(context.get_component_id()))

    def process(self, tup: Any) -> None:
        self.write(number=tup["number"], source=tup.task)


class OddOnesTogether:
    """Custom grouping: odd numbers to the first task, even ones to the last, multiples of ten to none."""

    def __init__(self, skip: int) -> None:
        self.skip = skip

    def prepare(self, context: Any, component: str, stream: str, target_tasks: Any) -> None:
        self.tasks = list(target_tasks)

    def choose_tasks(self, values: Any) -> list[int]:
        if values[0] % self.skip == 0:
            return []
        return [self.tasks[0] if values[0] % 2 else self.tasks[-1]]


class Odd(Diary, BasicBolt):
    """Bolt that records unusual values as they arrive."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)

    def process(self, tup: Any) -> None:
        self.write(type=type(tup["value"]).__name__, text=repr_of(tup["value"]))


def repr_of(value: Any) -> str:
    """Return a representation that is equal for equal sets, regardless of their order."""
    return repr(sorted(value)) if isinstance(value, set | frozenset) else repr(value)


class Counts(TaskHook):
    """Hook that counts the calls of each hook method."""

    def __init__(self, calls: dict[str, int]) -> None:
        self.calls = calls

    def emit(self, info: Any) -> None:
        self.calls[f"emit {info.stream}"] += 1

    def bolt_execute(self, info: Any) -> None:
        self.calls["bolt_execute"] += 1

    def bolt_ack(self, info: Any) -> None:
        self.calls["bolt_ack"] += 1

    def bolt_fail(self, info: Any) -> None:
        self.calls["bolt_fail"] += 1
        raise RuntimeError("a hook that raises disturbs nobody")


class Watched(Diary, Bolt):
    """Bolt with hooks, ticks and user-defined metrics."""

    outputs = ["case"]
    config = {"topology.tick.tuple.freq.ms": 100}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.calls: dict[str, int] = defaultdict(int)
        context.add_task_hook(Counts(self.calls))
        self.seen = context.register_metric("seen", CountMetric())
        self.by_case = context.register_metric("by-case", MultiCountMetric())
        self.level = context.register_metric("level", GaugeMetric())
        self.mean = context.register_metric("mean", MeanMetric())
        self.latency = context.register_metric("latency", LatencyMetric())
        self.ticks = 0
        sources = {"/".join(source): kind for source, kind in context.get_sources().items()}
        self.write(sources=sources, topology=context.get_topology_name())

    def process(self, tup: Any) -> None:
        self.seen.incr()
        self.by_case.incr(tup["case"])
        self.level.set(7)
        self.mean.update(3.0)
        self.latency.update(20.0)
        if tup["case"] == "hooked":
            self.emit([tup["case"]], anchors=[tup])
            self.fail(tup, "the watched one")
        else:
            self.ack(tup)

    def process_tick(self, tup: Any) -> None:
        self.ticks += 1
        self.write(ticks=self.ticks, is_tick=self.is_tick(tup), calls=self.calls)


class Greedy(Diary, Spout):
    """Spout that emits as many tuples as it may and records the largest number in flight."""

    outputs = ["number"]
    config = {"topology.max.spout.pending": 10}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.number = self.flying = self.most = 0

    def next_tuple(self) -> None:
        if self.number < 300:
            self.emit([self.number], tup_id=self.number)
            self.number += 1
            self.flying += 1
            if self.flying > self.most:
                self.most = self.flying
                self.write(most=self.most)

    def ack(self, tup_id: int) -> None:
        self.flying -= 1
        if self.number == 300 and not self.flying:
            self.write(done=self.most)

    def fail(self, tup_id: int) -> None:
        self.flying -= 1


class Holder(Bolt):
    """Bolt that keeps tuples until the file ``release`` exists, then acks all."""

    config = {"topology.tick.tuple.freq.ms": 50}

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.release = Path(config["user.folder"], "release")
        self.held: list[Any] = []

    def process(self, tup: Any) -> None:
        self.held.append(tup)

    def process_tick(self, tup: Any) -> None:
        if self.release.exists():
            for held in self.held:
                self.ack(held)
            self.held.clear()


class Clockwork(Diary, Spout):
    """Spout that emits indefinitely and records its count when it is paused and resumed."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.number = 0

    def next_tuple(self) -> None:
        if self.number % 2:  # every other call emits, so the runtime idles in between
            self.emit([self.number])
        self.number += 1

    def activate(self) -> None:
        self.write(activated=self.number)

    def deactivate(self) -> None:
        self.write(deactivated=self.number)


class Drain(BasicBolt):
    """Bolt that accepts every tuple."""

    def process(self, tup: Any) -> None:
        pass


class Semantics(Topology):
    """Topology with ``ATLEAST_ONCE`` in two containers; one case needs the short message timeout."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 4,
        "topology.stmgrs": 2,
        "user.folder": FOLDER,
    }

    cases = Cases.spec()
    judge = Judge.spec(inputs={cases: Grouping.SHUFFLE})
    doomed = Doomed.spec(inputs={judge["doomed"]: Grouping.SHUFFLE})
    raiser = Raiser.spec(inputs={cases: Grouping.SHUFFLE})
    batcher = Batcher.spec(inputs={cases: Grouping.SHUFFLE})
    fragile = Fragile.spec(inputs={cases: Grouping.SHUFFLE})
    watched = Watched.spec(inputs={cases: Grouping.NONE})
    everyone = Receiver.spec(par=3, inputs={cases["numbers"]: Grouping.ALL})
    local = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.LOCAL_OR_SHUFFLE})
    parity = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.custom(OddOnesTogether, skip=10)})
    lowest = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.GLOBAL})
    odd = Odd.spec(inputs={cases["odd"]: Grouping.SHUFFLE})


class Untracked(Diary, Spout):
    """Spout that emits with message ids that are not tracked."""

    outputs = [Stream(fields=["case"]), Stream(fields=["value"], name="odd")]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        self.open_diary(config, context)
        self.number = 0

    def next_tuple(self) -> None:
        if self.number < len(ODD_VALUES):
            self.emit([ODD_VALUES[self.number]], stream="odd")
        if self.number < 20:
            self.write(emitting=self.number)
            self.emit(["raise"], tup_id=self.number)
            self.number += 1

    def ack(self, tup_id: int) -> None:
        self.write(acked=tup_id)

    def fail(self, tup_id: int) -> None:
        self.write(failed=tup_id)


class AtMostOnce(Topology):
    """Topology without tracking: values are pickled, and spouts are held, paused and resumed."""

    config = {"topology.reliability.mode": "ATMOST_ONCE", "topology.serializer": "pickle", "user.folder": FOLDER}

    untracked = Untracked.spec()
    raising = Raiser.spec(inputs={untracked: Grouping.SHUFFLE})
    pickled = Odd.spec(inputs={untracked["odd"]: Grouping.SHUFFLE})
    clockwork = Clockwork.spec()
    drain = Drain.spec(inputs={clockwork: Grouping.SHUFFLE})


class Pending(Topology):
    """Topology whose spout may have ten tuples in flight."""

    config = {"topology.reliability.mode": "ATLEAST_ONCE", "user.folder": FOLDER}

    greedy = Greedy.spec()
    holder = Holder.spec(inputs={greedy: Grouping.SHUFFLE})
