"""Compiled programs in the deterministic world of executors: real spouts and bolts, no process, no clock of its own."""

from __future__ import annotations

import importlib
import os
import random
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from instance_world import Clock, Counts, World  # beside the tests of executors

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.setup import Setup
from heron_instance.core.spout_executor import SpoutExecutor
from heron_runtime.model.plan import (
    KEY_GROUPS,
    ContainerPlan,
    InstancePlan,
    KeyGroupTable,
    PackingPlan,
    PhysicalPlan,
    PlanVersion,
)
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heronry.streamlet import Builder
from heronry.streamlet.online.locate import STAGE

MODULE = "program_under_test"


@contextmanager
def importable(builder: Builder) -> Iterator[None]:
    """The builder stands in a module, as a user's would."""
    module = types.ModuleType(MODULE)
    module.program = builder  # type: ignore[attr-defined]
    sys.modules[MODULE] = module
    try:
        yield
    finally:
        del sys.modules[MODULE]


def definition_of(builder: Builder) -> TopologyDefinition:
    """As ``heron submit`` asks for it."""
    return builder.definition(variable=f"{MODULE}:program")


def plan_of(definition: TopologyDefinition) -> PhysicalPlan:
    """One container, tasks numbered in the order of components."""
    instances, tasks = [], {}
    number = 1
    for spec in definition.components:
        tasks[spec.name] = list(range(number, number + spec.parallelism))
        instances += [InstancePlan(t, spec.name, i) for i, t in enumerate(tasks[spec.name])]
        number += spec.parallelism
    packing = PackingPlan(definition.name, (ContainerPlan(1, tuple(instances)),))
    tables = tuple(
        KeyGroupTable(name, tuple(mine[g * len(mine) // KEY_GROUPS] for g in range(KEY_GROUPS)))
        for name, mine in tasks.items()
    )
    return PhysicalPlan(PlanVersion(1, 1), 1, definition, packing, (), tables, TopologyState.RUNNING)


class OnlineWorld(World):
    """Runs a compiled program until nothing happens any more."""

    def __init__(self, definition: TopologyDefinition, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self.plan = plan_of(definition)
        self.clock = Clock()
        self.random = random.Random(seed)
        self.seed = seed
        self.telemetry = {}
        self.executors = {}
        self.flushes = []
        self.wires = {}
        self.tracker = {}
        self.failed = {}
        self.completed = []
        self.late = []
        self.births = 0
        for task in self.plan.tasks():
            self.add(task, seed)

    def add(self, task: int, seed: int) -> None:
        """A new life of a task."""
        name = self.plan.component_of(task)
        spec = self.plan.topology.component(name)
        module, _, cls = spec.python_class.partition(":")
        component: Any = getattr(importlib.import_module(module), cls)()
        component.clock = self.clock
        self.births += 1
        self.telemetry[task] = Counts()
        setup = Setup(
            component=component, plan=self.plan, task=task, incarnation=self.births,
            rng=np.random.default_rng(seed * 1000 + self.births), telemetry=self.telemetry[task], clock=self.clock,
            wall=lambda: 0.0,
        )  # fmt: skip
        executor = (SpoutExecutor if spec.is_spout else BoltExecutor)(setup)
        self.executors[task] = executor
        assert STAGE in executor.task.config
        executor.start()
        executor.on_stream_manager(self.clock.ms, 7)

    def kill(self, task: int) -> None:
        """``kill -9`` and a new start: what was on the wires to it is lost, and what it had in its hands."""
        for pair in list(self.wires):
            if pair[1] == task:
                del self.wires[pair]
        old = self.executors.pop(task)
        self.vanish(old.task.component)
        lost = [root for root in self.tracker if root >> 48 == task]
        for root in lost:
            del self.tracker[root]
        self.add(task, self.seed)

    def vanish(self, component: Any) -> None:
        """What the operating system does with a dead process's files: closes them."""
        log = getattr(component, "_log", None)
        if log is not None:
            log.close()
        outlet = getattr(component, "outlet", None)
        for _, writer in outlet.sinks._writers if outlet is not None else ():
            file = getattr(writer, "_file", None)
            if file is not None:
                os.close(file)
        for reader in getattr(component, "_readers", {}).values():
            if hasattr(reader, "close"):
                reader.close()

    def send(self, task: int, flush: Any) -> None:
        """Wires are made as they are needed."""
        for frame in flush.frames:
            self.wires.setdefault((task, frame.destination_task), [])
        super().send(task, flush)

    def expire(self) -> None:
        """The tracker's timeout: every open root fails."""
        from heron_runtime.model.ids import root_task
        from heron_runtime.model.reasons import FailKind
        from heron_runtime.wire.data import Reason

        roots, self.tracker = list(self.tracker), {}
        for spout in {root_task(root) for root in roots}:
            self.verdict(spout, [r for r in roots if root_task(r) == spout], Reason(FailKind.TIMEOUT))

    def run_on(self, seconds: float) -> None:
        """Let simulated time pass."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            self.deliver()
            self.step(self.random.choice(self.plan.tasks()))
            if not any(self.wires.values()):
                self.clock.now += 0.01

    def until_final(self, seconds: float = 120) -> None:
        """Until every sink has said that no more will come."""
        until = self.clock.now + seconds
        while not self.is_final():
            self.run_on(0.5)
            assert self.clock.now < until, f"not final: open {len(self.tracker)}"

    def is_final(self) -> bool:
        """Every bolt knows that nothing more comes, and nothing is open."""
        bolts = [e.task.component for t, e in self.executors.items() if not self.plan.is_spout(t)]
        told = all((getattr(b, "_watermark", None) or b._arrivals).is_final for b in bolts)
        told = told and all(b.results.all_told for b in bolts if hasattr(b, "results"))
        hearts = [
            heart for e in self.executors.values() if (heart := getattr(e.task.component, "heart", None)) is not None
        ]
        open_roots = len(self.tracker) - sum(heart.open for heart in hearts)  # a pulse is always on its way
        return told and open_roots <= 0 and not any(self.wires.values())

    def stop(self) -> None:
        """Close user code."""
        for executor in self.executors.values():
            executor.stop(self.clock.ms)
