"""Topology of cases of acks, failures, groupings and activation; its tasks record what they see.

    heron submit local semantics_topology.py Semantics -- FOLDER

Every task appends JSON lines to ``FOLDER/<component>-<task>.jsonl``. The spout ``cases`` sends each case once; its
message ids name the case.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from heronry import BasicBolt, Bolt, Grouping, Spout, Stream, Topology

PER_GROUPING = 40
CASES = ("fail", "raise", "never", "unanchored", "anchored", "restart")  # the last one fails what waits for its bolt


class Diary:
    """Mixin that appends JSON lines to the task's own file."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        name = f"{context.get_component_id()}-{context.get_task_id()}.jsonl"
        self.diary = Path(config["user.folder"], name).open("a", buffering=1)  # noqa: SIM115  # open as long as the task lives
        self.write(pid=os.getpid(), container=context.get_container_id())

    def write(self, **what: Any) -> None:
        self.diary.write(json.dumps(what) + "\n")


class Cases(Diary, Spout):
    """Spout that emits each case once, one tuple per call, and records every verdict."""

    outputs = [Stream(fields=["case"]), Stream(fields=["number"], name="numbers")]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        super().initialize(config, context)
        self.work: list[Any] = [*CASES, *range(PER_GROUPING)][::-1]

    def next_tuple(self) -> None:
        if not self.work:
            return
        what = self.work.pop()
        if isinstance(what, str):
            self.emit([what], tup_id=what)
        else:
            tasks = self.emit([what], tup_id=f"number {what}", stream="numbers", need_task_ids=True)
            self.write(number=what, tasks=sorted(tasks or ()))

    def ack(self, tup_id: str) -> None:
        self.write(acked=tup_id)

    def fail(self, tup_id: str, reason: Any) -> None:
        self.write(failed=tup_id, kind=reason.kind, component=reason.component, task=reason.task,
                   message=reason.message, traceback=reason.traceback, elapsed_ms=reason.elapsed_ms)  # fmt: skip


class Judge(Bolt):
    """Bolt that acks and fails explicitly, case by case."""

    outputs = [Stream(fields=["case"], name="doomed")]

    def process(self, tup: Any) -> None:
        case = tup["case"]
        if case == "fail":
            self.fail(tup, "it is not to my taste")
        elif case == "never":
            self.kept = tup
        else:
            if case.endswith("anchored"):
                self.emit([case], stream="doomed", anchors=[tup] if case == "anchored" else None)
            self.ack(tup)


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


class Fragile(Diary, BasicBolt):
    """Bolt that restarts on its exception, in a new process."""

    config = {"topology.on.exception": "restart"}

    def process(self, tup: Any) -> None:
        if tup["case"] == "restart":
            raise MemoryError("start me again")


class Receiver(Diary, BasicBolt):
    """Bolt that records the numbers it receives."""

    def process(self, tup: Any) -> None:
        self.write(number=tup["number"])


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


class Clockwork(Diary, Spout):
    """Spout that emits indefinitely and records its count when it is paused and resumed."""

    outputs = ["number"]

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        super().initialize(config, context)
        self.number = 0

    def next_tuple(self) -> None:
        if self.number % 2:  # every other call emits, so the runtime idles in between
            self.emit([self.number])
        self.number += 1

    def activate(self) -> None:
        self.write(activated=self.number)

    def deactivate(self) -> None:
        self.write(deactivated=self.number)


class Drain(Diary, BasicBolt):
    """Bolt that accepts every tuple and records its ticks."""

    config = {"topology.tick.tuple.freq.ms": 100}

    def process(self, tup: Any) -> None:
        pass

    def process_tick(self, tup: Any) -> None:
        self.write(is_tick=self.is_tick(tup))


class Semantics(Topology):
    """Topology with ``ATLEAST_ONCE`` in two containers; one case needs the short message timeout."""

    config = {
        "topology.reliability.mode": "ATLEAST_ONCE",
        "topology.message.timeout.secs": 4,
        "topology.stmgrs": 2,
        "user.folder": os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ".",
    }

    cases = Cases.spec()
    judge = Judge.spec(inputs={cases: Grouping.SHUFFLE})
    doomed = Doomed.spec(inputs={judge["doomed"]: Grouping.SHUFFLE})
    raiser = Raiser.spec(inputs={cases: Grouping.SHUFFLE})
    fragile = Fragile.spec(inputs={cases: Grouping.SHUFFLE})
    everyone = Receiver.spec(par=3, inputs={cases["numbers"]: Grouping.ALL})
    local = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.LOCAL_OR_SHUFFLE})
    parity = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.custom(OddOnesTogether, skip=10)})
    lowest = Receiver.spec(par=2, inputs={cases["numbers"]: Grouping.GLOBAL})
    clockwork = Clockwork.spec()
    drain = Drain.spec(inputs={clockwork: Grouping.SHUFFLE})
