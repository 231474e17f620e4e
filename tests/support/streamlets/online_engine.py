"""Compiled streamlet programs in the executor harness, with checkpoints, restores and rescaling.

Spouts, bolts and the manifest of the topology master are the product's. Processes and a real clock are not used.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sys
import tempfile
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.spout_executor import SpoutExecutor
from heron_instance.core.state.snapshot import TaskSnapshot
from heron_instance.core.state.task_state import StateSetup, key_widths
from heron_instance.core.task import ExecutorSetup
from heron_instance.core.values_codec import ValuesCodec
from heron_instance.shell.checkpoint_io import load_restored_state
from heron_runtime.model.checkpoints import (
    CheckpointCommand,
    Manifest,
    StatePart,
    initial_manifest,
    keeps_state,
    next_manifest,
)
from heron_runtime.model.plan import (
    ContainerPlan,
    Generation,
    GenerationMember,
    GenerationPhase,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
    task_participant,
)
from heron_runtime.model.topology import GroupingKind, TopologyDefinition, TopologyState
from heronry.streamlet import Builder, KeyValue
from heronry.streamlet.online.locate import STAGE
from heronry.streamlet.online.server_spout import ServerSpout
from heronry.streamlet.online.sinks import ServerWriter
from heronry.streamlet.results import latest
from tests.support.harness.executors import Clock, Counts, ExecutorHarness
from topology_master.core.planner import initial_table, rebalance

MODULE = "program_under_test"
CHECKPOINT_SECONDS = 2.0
MOST_FAILURES = 5
CODEC = ValuesCodec()


@contextmanager
def importable(builder: Builder) -> Iterator[None]:
    """Put the builder in a module, like a user's."""
    module = types.ModuleType(MODULE)
    module.program = builder  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    try:
        yield
    finally:
        del sys.modules[MODULE]


def definition_of(builder: Builder) -> TopologyDefinition:
    """Return the definition that ``heron submit`` would use."""
    return builder.definition(variable=f"{MODULE}:program")


def builder_in(folder: Path | str, **config: Any) -> Builder:
    """Return the builder of a program whose state and dead letters are in ``folder``/own."""
    return Builder("program", {"user.streamlet.folder": f"{folder}/own", **config})


def run_online(builder: Builder, folder: Path, seed: int = 1) -> OnlineEngine:
    """Run a program to its end; return the engine, which is stopped."""
    with importable(builder):
        engine = OnlineEngine(definition_of(builder), folder, seed)
        engine.until_final()
        engine.stop()
    return engine


def ends_online(build: Callable[..., Builder], seed: int = 1) -> list[list[Any]]:
    """Return the results of each stream that ends, in order; of running results, the last ones.

    ``build`` takes the function to call with each stream that ends, and the configuration.
    """
    ends: list[list[Any]] = []

    def end(stream: Any) -> None:
        ends.append([])
        stream.tap(ends[-1].append, name=f"end-{len(ends)}")

    with tempfile.TemporaryDirectory() as folder:
        run_online(build(end, **{"user.streamlet.folder": folder}), Path(folder), seed)
    return [latest(records) if records and isinstance(records[0], KeyValue) else records for records in ends]


def letters_in(folder: Path | str) -> list[dict[str, Any]]:
    """Return the dead letters of a program whose state is in or below a folder, in the order of their files."""
    files = sorted(Path(folder).rglob("failed/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def plan_of(definition: TopologyDefinition) -> PhysicalPlan:
    """Return a plan of one container, with tasks numbered in the order of components."""
    instances, number = [], 1
    for spec in definition.components:
        for index in range(spec.parallelism):
            instances.append(InstancePlan(number, spec.name, index))
            number += 1
    packing = PackingPlan(definition.name, (ContainerPlan(1, tuple(instances)),), number)
    plan = PhysicalPlan(PlanVersion(1, 1), 1, definition, packing, (), (), TopologyState.RUNNING)
    keyed = [
        spec.name for spec in definition.components if any(i.grouping.kind is GroupingKind.FIELDS for i in spec.inputs)
    ]
    return replace(plan, key_groups=tuple(KeyGroupTable(name, initial_table(plan.tasks_of(name))) for name in keyed))


class Folder:
    """Storage of checkpoints."""

    folder = "the storage"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.manifests: dict[int, Manifest] = {}

    def read_manifest(self, checkpoint: int) -> Manifest:
        return self.manifests[checkpoint]

    @contextlib.contextmanager
    def open_part(self, name: str) -> Iterator[Callable[[int, int], bytes]]:
        data = self.files[name]
        yield lambda offset, size: data[offset : offset + size]


class OnlineEngine(ExecutorHarness):
    """Engine that runs a compiled program, with a checkpoint every two seconds if it keeps state."""

    def __init__(self, definition: TopologyDefinition, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.plan = plan_of(definition)
        self.clock = Clock()
        self.random = random.Random(seed)
        self.births = 0
        self.storage = Folder()
        self.last = initial_manifest(definition.id)
        self.keeps = keeps_state(definition.config)
        self.number = 0
        self.failures: list[str] = []
        self._in_a_row = 0
        self.executors = {}
        self.generation = 0
        self.begin()

    # Generations.

    def begin(self) -> None:
        """Restore everything from the last complete checkpoint, in a new generation."""
        self.generation += 1
        self.wires, self.flushes, self.tracker = defaultdict(list), [], {}
        self.failed, self.completed, self.late = {}, [], []
        self.telemetry = {}
        self.wish = CheckpointCommand(self.generation, over=self.number, complete=self.last.checkpoint)
        self._parts: dict[int, StatePart] | None = None  # of the current checkpoint
        self._resumed = False
        self._checked_at = self.clock.now
        members, first = [], self.births
        for place, task in enumerate(self.plan.tasks(), 1):
            members.append(GenerationMember(task_participant(task), first + place))
        if self.keeps:
            running = Generation(self.generation, GenerationPhase.RUNNING, self.last.checkpoint, tuple(members))
            self.plan = replace(self.plan, generation=running)
        for task in self.plan.tasks():
            self.add(task, self.generation)

    def add(self, task: int, seed: int) -> None:
        """Start a new life of a task."""
        name = self.plan.component_of(task)
        spec = self.plan.topology.component(name)
        module, _, cls = spec.python_class.partition(":")
        component: Any = getattr(importlib.import_module(module), cls)()
        component.clock = self.clock
        self.births += 1
        self.telemetry[task] = Counts()
        state = None
        if self.keeps:
            restored = load_restored_state(self.storage, self.plan, task, CODEC)  # type: ignore[arg-type]
            state = StateSetup(self._writer(task), 60_000.0, restored)
        setup = ExecutorSetup(
            component=component, plan=self.plan, task=task, incarnation=self.births,
            rng=np.random.default_rng(seed * 1000 + self.births), telemetry=self.telemetry[task], clock=self.clock,
            wall=lambda: 0.0, state=state,
        )  # fmt: skip
        executor = (SpoutExecutor if spec.is_spout else BoltExecutor)(setup)
        self.executors[task] = executor
        assert STAGE in executor.task.config
        executor.start()
        executor.on_stream_manager(self.clock.ms, 7)
        if executor.checkpointer is not None:
            executor.checkpointer.linked()
            executor.checkpointer.follow(self.plan)

    def end(self, dead: int | None = None) -> None:
        """End the executors of this generation; a dead task's without notification."""
        for task, executor in self.executors.items():
            if task == dead:
                if isinstance(executor.task.component, ServerSpout):
                    executor.task.component.close()  # as the operating system closes its connection
                for writer in getattr(executor.task.component, "writers", ()):
                    if hasattr(writer, "_let_go"):
                        writer._let_go()  # as the operating system closes a dead process's files
                    if isinstance(writer, ServerWriter):
                        writer.close()  # and those of others
            else:
                executor.stop(self.clock.ms)
        self.executors = {}

    def kill(self, task: int) -> None:
        """Kill a task as with ``kill -9``: its input is lost, and all restore the last complete checkpoint."""
        if self.keeps:
            self.end(task)
            self.begin()
            return
        for pair in [pair for pair in self.wires if pair[1] == task]:
            del self.wires[pair]
        self.executors.pop(task)
        self.add(task, self.births)

    def rescale(self, parallelism: Mapping[str, int]) -> None:
        """Continue from the last complete checkpoint with other numbers of tasks."""
        self.end()
        topology, packing = self.plan.topology, self.plan.packing
        components = tuple(replace(c, parallelism=parallelism.get(c.name, c.parallelism)) for c in topology.components)
        number, instances = packing.next_task, []
        for spec in components:
            tasks = list(self.plan.tasks_of(spec.name))[: spec.parallelism]
            while len(tasks) < spec.parallelism:
                tasks.append(number)
                number += 1
            instances += [InstancePlan(task, spec.name, index) for index, task in enumerate(tasks)]
        packing = PackingPlan(packing.topology, (ContainerPlan(1, tuple(instances)),), number)
        plan = replace(self.plan, topology=replace(topology, components=components), packing=packing)
        tables = (KeyGroupTable(t.component, rebalance(t.tasks, plan.tasks_of(t.component))) for t in plan.key_groups)
        self.plan = replace(plan, key_groups=tuple(tables))
        self.begin()

    # Checkpoints, as the master takes them.

    def _writer(self, task: int) -> Callable[[TaskSnapshot], None]:
        def write(snapshot: TaskSnapshot) -> None:
            part, pieces = snapshot.encode()
            self.storage.files[part.name] = b"".join(pieces)
            self.executors[task].checkpointer.on_part(part)  # type: ignore[union-attr]

        return write

    def master(self) -> None:
        """Run one step of the master."""
        if not self.keeps:
            return
        failed = [executor.failed for executor in self.executors.values() if executor.failed is not None]
        if failed:
            self.failures.append(str(failed[0]))
            self._in_a_row += 1
            assert self._in_a_row <= MOST_FAILURES, f"the topology has failed: {failed[0]}"
            self.end()
            self.begin()
            return
        wish, reports = self.wish, [e.checkpointer.report for e in self.executors.values()]  # type: ignore[union-attr]
        assert not any(report.lost or report.failed for report in reports)
        if self._parts is None:
            if self.clock.now - self._checked_at >= CHECKPOINT_SECONDS:
                self.number += 1
                self._parts = {}
                self._resumed = False
                self.wish = replace(wish, under=self.number, turn=self.last.turn + 1)
            return
        assert all(report.declined < self.number for report in reports), reports
        if not self._resumed:
            if all(report.aligned == self.number for report in reports):
                assert not any(self.wires.values()), "a quiet point with frames on the way"
                self._resumed = True
                self.wish = replace(wish, under=0, over=self.number)
            return
        parts = [part for report in reports for part in report.stored if part.checkpoint == self.number]
        assert len(parts) == len(reports)
        if self.random.random() < 0.2:
            tables = {t.component: t.tasks for t in self.plan.key_groups if key_widths(self.plan, t.component)}
            self.last = next_manifest(self.last, parts, self.plan.version, tables)
            self.storage.manifests[self.number] = self.last
            self.wish = replace(wish, complete=self.number)
            self._parts, self._in_a_row, self._checked_at = None, 0, self.clock.now

    def step(self, task: int) -> float | None:
        self.master()
        executor = self.executors.get(task)
        if executor is None:
            return None
        if executor.checkpointer is not None:
            executor.checkpointer.apply_command(self.wish)
            executor.on_wake(self.clock.ms)
            executor.checkpointer.check()
        return super().step(task)

    def run_on(self, seconds: float) -> None:
        """Advance simulated time."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.deliver()
            self.step(self.random.choice(self.plan.tasks()))
            if not any(self.wires.values()):
                self.clock.now += 0.02

    def until_final(self, seconds: float = 120) -> None:
        """Run until readers know that their input is complete."""
        until = self.clock.now + seconds
        while not self.is_final():
            self.run_on(0.5)
            assert self.clock.now < until, "not final"
        first = self.number
        while self.keeps and (self.last.checkpoint <= first + 1 or not self.is_final()):  # one that began after the end
            self.run_on(0.2)
            assert self.clock.now < until + 60, "no checkpoint after the end"
        self.run_on(3.0)

    def is_final(self) -> bool:
        """Return True if every bolt knows that its input is complete."""
        bolts = [e.task.component for t, e in self.executors.items() if not self.plan.is_spout(t)]
        return all(bolt.final for bolt in bolts) and not any(self.wires.values())

    def stop(self) -> None:
        """Close user code; the executors can still be inspected."""
        executors = self.executors
        self.end()
        self.executors = executors
