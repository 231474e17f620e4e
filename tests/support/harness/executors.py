"""In-memory test harness for executors: builds a plan, delivers frames between tasks and checks acks.

It uses no clock, thread or process. ``ExecutorHarness`` delivers frames, acks and verdicts in an order drawn from a
seeded generator and checks the invariants of acking after each step.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor, Flush
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.task import ExecutorDriver, ExecutorSetup
from heron_instance.core.user_code import NoLock
from heron_runtime.model.ids import root_task
from heron_runtime.model.plan import PhysicalPlan
from heron_runtime.model.topology import (
    ComponentKind,
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    StreamSchema,
    TopologyState,
)
from heron_runtime.wire.data import Frame, Reason, Verdict
from tests.support.definitions import plan_of, round_robin_packing, topology_spec

SHUFFLE = GroupingSpec(GroupingKind.SHUFFLE)
ALL = GroupingSpec(GroupingKind.ALL)


def fields(*names: str) -> GroupingSpec:
    return GroupingSpec(GroupingKind.FIELDS, names)


@dataclass
class Part:
    """Component of the plan: its object factory, tasks, outputs (stream to fields) and inputs."""

    make: Any
    par: int = 1
    outputs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inputs: Sequence[tuple[str, str, GroupingSpec]] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    direct: Sequence[str] = ()


def make_plan(
    parts: Mapping[str, Part],
    config: Mapping[str, Any] | None = None,
    containers: int = 1,
    state: TopologyState = TopologyState.RUNNING,
) -> PhysicalPlan:
    specs = []
    for name, part in parts.items():
        kind = ComponentKind.BOLT if part.inputs else ComponentKind.SPOUT
        outputs = tuple(StreamSchema(s, tuple(f), s in part.direct) for s, f in part.outputs.items())
        inputs = tuple(InputSpec(c, s, g) for c, s, g in part.inputs)
        specs.append(ComponentSpec(name, kind, f"x:{name}", part.par, outputs, inputs, part.config))
    topology = topology_spec("t", *specs, config={"topology.reliability.mode": "ATLEAST_ONCE", **(config or {})})
    return plan_of(topology, round_robin_packing(topology, containers), tables=True, state=state)


class Counts:
    """Telemetry that records everything."""

    def __init__(self) -> None:
        self.counters: dict[str, float] = defaultdict(float)
        self.gauges: dict[str, float] = {}
        self.latencies: dict[str, float] = defaultdict(float)
        self.exceptions: list[str] = []

    def count(self, name: str, n: float = 1) -> None:
        self.counters[name] += n

    def gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value

    def latency(self, name: str, milliseconds: float, weight: float = 1) -> None:
        assert milliseconds >= 0
        self.latencies[name] += weight

    def exception(self, class_name: str, message: str, traceback: str, now: float, n: int = 1) -> None:
        self.exceptions += [class_name] * n


class Clock:
    """Simulated clock in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-6
        return self.now

    @property
    def ms(self) -> float:
        return self.now * 1000


class ExecutorHarness:
    """Executors of every task of a plan, joined by wires that only keep the order per pair of tasks."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        classes: Mapping[str, Any] | None = None,
        lock: Callable[[], Any] = NoLock,
        **kw: Any,
    ) -> None:
        self.parts = parts
        self.plan = make_plan(parts, config, **kw)
        self.clock = Clock()
        self.random = random.Random(seed)
        self.telemetry: dict[int, Counts] = {}
        self.executors: dict[int, Executor] = {}
        self.flushes: list[tuple[int, Flush]] = []
        self.wires: dict[tuple[int, int], list[Frame]] = defaultdict(list)
        self.tracker: dict[int, int] = {}
        self.failed: dict[int, Reason] = {}
        self.completed: list[int] = []
        self.late: list[int] = []  # roots of acks that arrived after the tracker had dropped them
        self.make_lock = lock
        self.loaded: Mapping[str, Any] = classes or {}
        for task in self.plan.tasks():
            self.add(task, seed)
        for executor in self.executors.values():
            executor.start()
            executor.on_stream_manager(self.clock.ms, 7)

    def add(self, task: int, seed: int) -> None:
        self.executors[task] = self.make_executor(task, self.setup_of(task, seed))

    def make_executor(self, task: int, setup: ExecutorSetup) -> Executor:
        return SpoutExecutor(setup) if self.plan.is_spout(task) else BoltExecutor(setup)

    def drive(self, task: int, driver: ExecutorDriver) -> Executor:
        """Put a new executor with a driver in the place of one that has done nothing yet."""
        setup = replace(self.setup_of(task), component=self.components[task], driver=driver)
        executor = self.executors[task] = self.make_executor(task, setup)
        executor.start()
        executor.on_stream_manager(self.clock.ms, 7)
        return executor

    def setup_of(self, task: int, seed: int = 0) -> ExecutorSetup:
        self.telemetry[task] = Counts()
        return ExecutorSetup(
            component=self.parts[self.plan.component_of(task)].make(),
            plan=self.plan,
            task=task,
            incarnation=5,
            rng=np.random.default_rng(seed * 1000 + task),
            telemetry=self.telemetry[task],
            clock=self.clock,
            wall=lambda: 0.0,
            load=lambda path: self.loaded[path],
            lock=self.make_lock(),
        )

    def of(self, component: str) -> list[Any]:
        return [self.executors[task] for task in self.plan.tasks_of(component)]

    @property
    def components(self) -> dict[int, Any]:
        """Return the user's object of each task."""
        return {task: executor.task.component for task, executor in self.executors.items()}

    def objects(self, component: str) -> list[Any]:
        return [executor.task.component for executor in self.of(component)]

    def step(self, task: int) -> float | None:
        executor = self.executors[task]
        if executor.failed is not None:
            return None
        self.clock.now += 0.0005
        step = executor.run(self.clock.ms)
        executor.check()
        for flush in step.flushes:
            self.send(task, flush)
        return step.wait_ms

    def send(self, task: int, flush: Flush) -> None:
        """Handle a packet like a stream manager: inits, acks, fails, then frames."""
        self.flushes.append((task, flush))
        for init in flush.inits:
            assert root_task(init.first_root) == task
            for place, xor in enumerate(np.frombuffer(init.xors, "<u8").tolist()):
                root = init.first_root + place
                assert root not in self.tracker
                self.tracker[root] = xor
        verdicts: dict[int, list[int]] = defaultdict(list)
        for ack in flush.acks:
            for root, xor in zip(
                np.frombuffer(ack.roots, "<u8").tolist(), np.frombuffer(ack.xors, "<u8").tolist(), strict=True
            ):
                assert root_task(root) == ack.task
                if root not in self.tracker:
                    self.late.append(root)
                    continue
                self.tracker[root] ^= xor
                if self.tracker[root] == 0:
                    del self.tracker[root]
                    self.completed.append(root)
                    verdicts[root_task(root)].append(root)
        for spout, roots in verdicts.items():
            self.verdict(spout, roots, None)
        for fail in flush.fails:
            mine = [
                root for root in np.frombuffer(fail.roots, "<u8").tolist() if self.tracker.pop(root, None) is not None
            ]
            for root in mine:
                assert root_task(root) == fail.task
                self.failed[root] = fail.reason
            if mine:
                self.verdict(fail.task, mine, fail.reason)
        for frame in flush.frames:
            assert frame.source_task == task
            self.wires[task, frame.destination_task].append(frame)
        self.executors[task].on_sent(self.clock.ms, flush.weight())

    def verdict(self, spout: int, roots: list[int], reason: Reason | None) -> None:
        column = np.array(roots, dtype=np.uint64).tobytes()
        self.executors[spout].on_verdicts(self.clock.ms, [Verdict(spout, column, reason)])

    def deliver(self) -> bool:
        """Deliver one frame of one wire, drawn by the generator."""
        waiting = sorted(pair for pair, frames in self.wires.items() if frames)
        if not waiting:
            return False
        pair = self.random.choice(waiting)
        frame = self.wires[pair].pop(0)
        self.executors[pair[1]].on_frames(self.clock.ms, [frame])
        return True

    def run(self, rounds: int = 4000) -> None:
        """Run until nothing is left to do."""
        quiet = 0
        for _ in range(rounds):
            before = len(self.flushes)
            moved = self.deliver()
            self.step(self.random.choice(self.plan.tasks()))
            quiet = 0 if moved or len(self.flushes) != before else quiet + 1
            if quiet > 60 and not any(self.wires.values()):
                return
            if quiet > 20:
                self.clock.now += 0.02
        raise AssertionError("the world does not come to rest")


def chain(*makes: Any, row: Sequence[str] = ("n",), **kw: Any) -> ExecutorHarness:
    """Return a harness of a spout ``s``, an optional bolt ``b`` and a reader ``r``, with one task each."""
    names = "sbr" if len(makes) == 3 else "sr"
    parts: dict[str, Part] = {}
    for place, (name, make) in enumerate(zip(names, makes, strict=True)):
        outputs = {} if name == "r" else {"default": row}
        parts[name] = Part(make, 1, outputs, [(names[place - 1], "default", SHUFFLE)] if place else ())
    return ExecutorHarness(parts, **kw)
