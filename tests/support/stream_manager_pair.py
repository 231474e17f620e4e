"""Two real stream managers in this process, a stub topology master, and the plans that it sends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import TaskReport
from heron_runtime.model.plan import (
    NO_GENERATION,
    Generation,
    PhysicalPlan,
    PlanVersion,
    StreamManagerInfo,
    stream_manager_of,
)
from heron_runtime.wire.data import Frame
from stream_manager.shell.process import StreamManagerProcess
from tests.support.definitions import component, packing_of, plan_of, topology_spec
from tests.support.stream_manager_client import TestInstance, TestMaster
from tests.support.waiting import wait_until_async

TOPOLOGY_ID = "t-1"
MARKS = {"topology.backpressure.high.watermark.bytes": 400_000, "topology.backpressure.low.watermark.bytes": 100_000}
WORD, COUNT = component("word", parallelism=2), component("count", "word", parallelism=2)
DEFINITION = topology_spec("t", WORD, COUNT, config=MARKS)
PACKING = packing_of("t", {1: {1: "word", 2: "count"}, 2: {3: "word", 4: "count"}})


def make_plan(infos: list[StreamManagerInfo], number: int = 1, generation: Generation = NO_GENERATION) -> PhysicalPlan:
    return plan_of(DEFINITION, PACKING, PlanVersion(1, number), tuple(infos), generation=generation)


def frame(source: int, destination: int, values: bytes = b"x", **columns: bytes) -> Frame:
    return Frame(source, 0, destination, 1, 1, 0, values, **columns)


@dataclass
class StreamManagerPair:
    launch: Launch
    master: TestMaster
    managers: dict[int, StreamManagerProcess] = field(default_factory=dict)
    instances: list[TestInstance] = field(default_factory=list)

    async def instance(self, task: int, **options: Any) -> TestInstance:
        instance = TestInstance(self.launch, 1 if task < 3 else 2, task, **options)
        self.instances.append(await instance.connect())
        await wait_until_async(lambda: instance.plan, "the plan")
        return instance

    async def start_manager(self, container: int) -> StreamManagerProcess:
        manager = self.managers[container] = StreamManagerProcess(self.launch, container)
        await manager.start()
        await wait_until_async(lambda: self._registration(container) == manager.core.info, "the registration")
        return manager

    async def plan(self, number: int = 1) -> None:
        await self.master.send_plan(make_plan([m.core.info for m in self.managers.values()], number))
        await wait_until_async(lambda: all(m.core.is_linked() for m in self.managers.values()), "links")

    async def next_plan(self, generation: Generation, *only: int) -> None:
        """Send a plan of this generation to all stream managers or only to these."""
        assert self.master.plan is not None
        infos = [manager.core.info for manager in self.managers.values()]
        await self.master.send_plan(make_plan(infos, self.master.plan.version.number + 1, generation), *only)

    def report(self, container: int) -> TaskReport:
        """Return the last report of the stream manager."""
        reports = self.master.beats[container].reports if container in self.master.beats else ()
        here = stream_manager_of(container), self.managers[container].core.info.incarnation
        return next((one.report for one in reports if (one.place, one.incarnation) == here), TaskReport(0))

    async def restored(self, number: int) -> None:
        """Wait until both stream managers have reported the restore."""
        wanted = TaskReport(number, restored=True)
        await wait_until_async(lambda: all(self.report(c) == wanted for c in self.managers), f"generation {number}")

    def _registration(self, container: int) -> StreamManagerInfo | None:
        register = self.master.registered.get(container)
        return None if register is None else register.stream_manager
