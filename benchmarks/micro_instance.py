"""CPU cost of an instance per tuple, without any transport: the executors alone, on one thread.

    .venv/bin/python -m benchmarks.micro_instance [SECONDS]

Each row runs one production executor with real user code, including encoding and decoding, and prints the CPU time per
tuple (median of 5 rounds). A calibration loop is timed beside it, which shows whether the machine was loaded.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.task import ExecutorSetup
from heron_runtime.model.ids import KEY_GROUPS, root_base
from heron_runtime.model.plan import (
    ContainerPlan,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
)
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyDefinition,
)
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.wire.data import Frame, Verdict
from heronry.api.component import BasicBolt, BatchBolt, Bolt, Spout
from heronry.api.hooks import TaskHook

WORDS = [f"word{n * 7919 % 175_000}" for n in range(1 << 15)]
ROW = (StreamSchema("default", ("word",)),)


class WordSpout(Spout):
    """Spout of one word per call."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Read the words."""
        self.n = 0

    def next_tuple(self) -> None:
        """Emit one word."""
        n = self.n = self.n + 1
        self.emit((WORDS[n & 32767],), tup_id=n)


class ListSpout(WordSpout):
    """Spout that emits lists, as most users write it."""

    def next_tuple(self) -> None:
        """Emit one word as a list."""
        n = self.n = self.n + 1
        self.emit([WORDS[n & 32767]], tup_id=n)


class HookedSpout(WordSpout):
    """Spout with a task hook that does nothing."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Add the hook."""
        super().initialize(config, context)
        context.add_task_hook(TaskHook())


class NamedStreamSpout(WordSpout):
    """Spout that emits to a named stream, which uses the general path."""

    def next_tuple(self) -> None:
        """Emit one word to the stream."""
        n = self.n = self.n + 1
        self.emit((WORDS[n & 32767],), n, "".join(("def", "ault")))


class AckedSpout(WordSpout):
    """Spout with an ``ack`` method."""

    def ack(self, tup_id: Any) -> None:
        """Count the ack."""
        self.last = tup_id


class ManySpout(WordSpout):
    """Spout of a hundred words per call."""

    def next_tuple(self) -> None:
        """Emit a hundred words."""
        n = self.n
        self.n = n + 100
        self.emit_many([(WORDS[i & 32767],) for i in range(n, n + 100)], range(n, n + 100))


class CountBolt(Bolt):
    """Bolt that counts words and acks explicitly."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start at zero."""
        self.counts: dict[str, int] = {}

    def process(self, tup: Any) -> None:
        """Count one word."""
        counts, word = self.counts, tup.values[0]
        counts[word] = counts.get(word, 0) + 1
        self.ack(tup)


class NamedCountBolt(CountBolt):
    """Bolt that reads the field by name."""

    def process(self, tup: Any) -> None:
        """Count one word."""
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        self.ack(tup)


class BasicCountBolt(BasicBolt):
    """Basic bolt that counts words."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start at zero."""
        self.counts: dict[str, int] = {}

    def process(self, tup: Any) -> None:
        """Count one word."""
        counts, word = self.counts, tup.values[0]
        counts[word] = counts.get(word, 0) + 1


class BatchCountBolt(BatchBolt):
    """Batch bolt that counts a column."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Start at zero."""
        self.counts: Counter[str] = Counter()

    def process_batch(self, tuples: Any) -> None:
        """Count a batch of words."""
        self.counts.update(tuples.column("word"))


class PassBolt(Bolt):
    """Bolt that emits anchored and acks explicitly."""

    def process(self, tup: Any) -> None:
        """Pass one tuple on."""
        self.emit((tup.values[0],), anchors=[tup])
        self.ack(tup)


class BasicPassBolt(BasicBolt):
    """Basic bolt that emits."""

    def process(self, tup: Any) -> None:
        """Pass one tuple on."""
        self.emit((tup.values[0],))


class HookedPassBolt(BasicPassBolt):
    """Bolt with a task hook that does nothing."""

    def initialize(self, config: dict[str, Any], context: Any) -> None:
        """Add the hook."""
        context.add_task_hook(TaskHook())


class BatchPassBolt(BatchBolt):
    """Batch bolt that emits row by row, anchored."""

    def process_batch(self, tuples: Any) -> None:
        """Pass a batch on."""
        self.emit_many(tuples.rows, anchors=tuples, one_to_one=True)


def make_plan(tracked: bool, sinks: int, emits: bool) -> PhysicalPlan:
    """Return a plan of spout 1, bolt 2, sinks 3…, with words by fields grouping."""
    fields = GroupingSpec(GroupingKind.FIELDS, ("word",))
    components: tuple[ComponentSpec, ...] = (
        ComponentSpec("spout", ComponentKind.SPOUT, "x:S", 1, ROW),
        ComponentSpec(
            "bolt", ComponentKind.BOLT, "x:B", 1, ROW if emits else (), (InputSpec("spout", "default", fields),)
        ),
        ComponentSpec(
            "sink",
            ComponentKind.BOLT,
            "x:B",
            sinks,
            (),
            (InputSpec("bolt" if emits else "spout", "default", fields),),
        ),
    )
    instances = [InstancePlan(1, "spout", 0), InstancePlan(2, "bolt", 0)]
    instances += [InstancePlan(3 + i, "sink", i) for i in range(sinks)]
    tasks = {"spout": [1], "bolt": [2], "sink": [3 + i for i in range(sinks)]}
    tables = tuple(
        KeyGroupTable(name, tuple(mine[g * len(mine) // KEY_GROUPS] for g in range(KEY_GROUPS)))
        for name, mine in tasks.items()
    )
    if not emits:  # the spout has one reader in every case
        components = components[:2]
        instances, tables = instances[:2], tables[:2]
    mode = "ATLEAST_ONCE" if tracked else "ATMOST_ONCE"
    topology = TopologyDefinition("t", "t-1", components, {"topology.reliability.mode": mode})
    packing = PackingPlan("t", (ContainerPlan(1, tuple(instances)),))
    return PhysicalPlan(PlanVersion(1, 1), 1, topology, packing, (), tables)


def make_setup(component: Any, plan: PhysicalPlan, task: int) -> ExecutorSetup:
    """Return a production set-up without a shell."""
    telemetry = Telemetry(plan.component_of(task), "x", 1, task, 1)
    return ExecutorSetup(component, plan, task, 1, np.random.default_rng(1), telemetry, time.monotonic, time.time)


def spout_round(spout: type[Spout], tracked: bool) -> Callable[[int], None]:
    """Return a function that emits this many tuples; each flush is acked at once."""
    executor = SpoutExecutor(make_setup(spout(), make_plan(tracked, 1, False), 1))
    executor.start()
    executor.on_stream_manager(0, 1)

    def run(count: int) -> None:
        done = 0
        while done < count:
            for flush in executor.run(time.monotonic() * 1000).flushes:
                done += sum(frame.count for frame in flush.frames)
                executor.on_sent(0, flush.weight())
                executor.on_verdicts(0, [Verdict(1, f.roots) for f in flush.frames if f.roots])

    return run


def bolt_round(
    bolt: type[Bolt], tracked: bool, sinks: int = 4, emits: bool = False, batch: int = 1024
) -> Callable[[int], None]:
    """Return a function that processes this many tuples in frames of ``batch``."""
    executor = BoltExecutor(make_setup(bolt(), make_plan(tracked, sinks, emits), 2))
    executor.start()
    rng = np.random.default_rng(2)
    codec, values = executor.task.codec.encode([(WORDS[int(i)],) for i in rng.integers(0, 32768, batch)])
    roots = (np.arange(batch, dtype=np.uint64) + np.uint64(root_base(1, 1))).tobytes() if tracked else b""
    keys = rng.bytes(8 * batch) if tracked else b""

    def run(count: int) -> None:
        for _ in range(count // batch):
            executor.on_frames(
                time.monotonic() * 1000, [Frame(1, 0, 2, batch, 1, int(codec), values, b"", roots, keys)]
            )
            while executor.data_in.size or executor._work is not None:
                for flush in executor.run(time.monotonic() * 1000).flushes:
                    executor.on_sent(0, flush.weight())

    return run


CASES: dict[str, Callable[[], Callable[[int], None]]] = {
    "spout: next_tuple + emit, no acks": lambda: spout_round(WordSpout, False),
    "spout: next_tuple + emit, tracked": lambda: spout_round(WordSpout, True),
    "spout: the same, emitting a list": lambda: spout_round(ListSpout, True),
    "spout: tracked, with a task hook": lambda: spout_round(HookedSpout, True),
    "spout: tracked, a stream by name": lambda: spout_round(NamedStreamSpout, True),
    "spout: tracked, with an ack method": lambda: spout_round(AckedSpout, True),
    "spout: emit_many of 100, tracked": lambda: spout_round(ManySpout, True),
    "bolt: count + self.ack, no acks": lambda: bolt_round(CountBolt, False),
    "bolt: count + self.ack, tracked": lambda: bolt_round(CountBolt, True),
    "bolt: the same, by field name": lambda: bolt_round(NamedCountBolt, True),
    "bolt: the same, frames of 100": lambda: bolt_round(CountBolt, True, batch=100),
    "BasicBolt: count, no acks": lambda: bolt_round(BasicCountBolt, False),
    "BasicBolt: count, tracked": lambda: bolt_round(BasicCountBolt, True),
    "BatchBolt: Counter.update(column), no acks": lambda: bolt_round(BatchCountBolt, False),
    "BatchBolt: Counter.update(column), tracked": lambda: bolt_round(BatchCountBolt, True),
    "bolt: emit anchored + self.ack, 4 readers": lambda: bolt_round(PassBolt, True, 4, True),
    "BasicBolt: emit, 4 readers": lambda: bolt_round(BasicPassBolt, True, 4, True),
    "BasicBolt: emit, 4 readers, a task hook": lambda: bolt_round(HookedPassBolt, True, 4, True),
    "BatchBolt: emit_many one to one, 4 readers": lambda: bolt_round(BatchPassBolt, True, 4, True),
    "BasicBolt: emit, 4 readers, no acks": lambda: bolt_round(BasicPassBolt, False, 4, True),
}


def calibrate() -> float:
    """Return the nanoseconds of one step of a fixed loop."""
    began = time.process_time_ns()
    total = 0
    for i in range(300_000):
        total += i & 7
    return (time.process_time_ns() - began) / 300_000


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 0.3
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    print(f"{'case':46} {'ns/tuple':>9} {'calibration':>12}")
    for name, make in CASES.items():
        run = make()
        run(4096)
        began = time.perf_counter()
        run(16384)
        count = max(4096, int(16384 * seconds / 5 / (time.perf_counter() - began)) // 1024 * 1024)
        rounds = []
        for _ in range(5):
            cpu = time.process_time_ns()
            run(count)
            rounds.append((time.process_time_ns() - cpu) / count)
        print(f"{name:46} {statistics.median(rounds):9.0f} {calibrate():12.1f}")


if __name__ == "__main__":
    main()
