"""Executor harness with keyed state: all tasks take part in generation 1, which is running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from heron_instance.core.bolt_executor import BoltExecutor
from heron_instance.core.executor import Executor
from heron_instance.core.state.task_state import INITIAL_STATE, RestoredState, StateSetup
from heron_instance.core.task import ExecutorDriver, ExecutorSetup
from heron_instance.core.user_code import ThreadInspector
from heron_runtime.model.plan import Generation, GenerationMember, GenerationPhase, task_participant
from tests.support.harness.executors import Counts, ExecutorHarness, Part

INCARNATION = 5


class StatefulExecutorHarness(ExecutorHarness):
    """Executor harness with state. ``restored``: initial state by task. ``wall_s``: a constant time of day."""

    def __init__(
        self,
        parts: Mapping[str, Part],
        config: Mapping[str, Any] | None = None,
        seed: int = 0,
        restored: Mapping[int, RestoredState] | None = None,
        wall_s: float = 0.0,
        threads: ThreadInspector | None = None,
        **kw: Any,
    ) -> None:
        self.restored = restored or {}
        self.wall_s = wall_s
        self.threads, self.wakes = threads, 0
        super().__init__(parts, {"topology.reliability.mode": "EFFECTIVELY_ONCE", **(config or {})}, seed, **kw)
        for executor in self.executors.values():
            self.state_of(executor).linked()
            self.state_of(executor).follow(self.plan)

    @staticmethod
    def state_of(executor: Any) -> Any:
        return executor.checkpointer

    def setup_of(self, task: int, seed: int = 0) -> ExecutorSetup:
        members = tuple(GenerationMember(task_participant(each), INCARNATION) for each in self.plan.tasks())
        self.plan = replace(self.plan, generation=Generation(1, GenerationPhase.RUNNING, members=members))
        self.telemetry[task] = Counts()
        return ExecutorSetup(
            component=self.parts[self.plan.component_of(task)].make(), plan=self.plan, task=task,
            incarnation=INCARNATION, rng=np.random.default_rng(seed * 1000 + task), telemetry=self.telemetry[task],
            clock=self.clock, wall=lambda: self.wall_s, load=lambda path: self.loaded[path], lock=self.make_lock(),
            threads=self.threads, wake=self._wake,
            state=StateSetup(lambda snapshot: None, 1000.0, self.restored.get(task, INITIAL_STATE)),
        )  # fmt: skip

    def drive(self, task: int, driver: ExecutorDriver) -> Executor:
        executor = super().drive(task, driver)
        self.state_of(executor).linked()
        self.state_of(executor).follow(self.plan)
        return executor

    def _wake(self) -> None:
        self.wakes += 1

    def run(self, rounds: int = 4000) -> None:
        """Run until nothing is left to do and no task has input: a bolt's run takes frames of one stream."""
        super().run(rounds)
        while any(
            executor.data_in.size or executor._work is not None
            for executor in self.executors.values()
            if isinstance(executor, BoltExecutor) and executor.failed is None
        ):
            super().run(rounds)
