"""A topology in a real state store whose processes are stub gRPC servers with configurable replies.

The metric store of the topology master and the log service of heron_container are the product's.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from heron_container.shell.service import serve
from heron_control.schedulers.topology_folder import place_of, write_secrets
from heron_runtime.launch import Launch
from heron_runtime.model.dataflow import Cause, CauseKind
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import InstancePlan, PlanVersion, StreamManagerInfo
from heron_runtime.model.records import ContainerLocation, ExecutionState, MasterLocation, SchedulerLocation
from heron_runtime.model.sketch import Sketch
from heron_runtime.model.topology import (
    ComponentSpec,
    GroupingKind,
    GroupingSpec,
    InputSpec,
    TopologyDefinition,
    TopologyState,
)
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import MASTER_SERVICE, SCHEDULER_SERVICE, make_server
from heron_runtime.state import paths, topologies
from heron_runtime.state.store import Create, Delete, Set, StateStore
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import ContainerStatus, ProcessState, ProcessStatus, SchedulerStatus
from heron_runtime.wire.master import NO_STATE, MasterStatus, PublishMetrics, StreamManagerStatus
from heron_runtime.wire.metrics import ExceptionReport, ProcessMetrics
from heron_runtime.wire.sketch_codec import encode_sketch
from tests.support.definitions import component, plan_of, round_robin_packing, topology_spec
from topology_master.core.metric_store import MetricStore

T = TypeVar("T")
HOST = "127.0.0.1"
STEP_SECONDS = 30
MINUTES = 25
TRACEBACK = 'Traceback (most recent call last):\n  File "words.py", line 31, in process\n    return int(word)\n'


def word_count(name: str = "WordCount", suffix: str = "") -> TopologyDefinition:
    """Return two spouts, four bolts and an edge that skips a layer. ``suffix`` is appended to the bolts' names."""
    split, count, rank, store = (bolt + suffix for bolt in ("split", "count", "rank", "store"))

    def spec(name: str, code: str, parallelism: int, *inputs: str | InputSpec, **more: Any) -> ComponentSpec:
        return component(name, *inputs, parallelism=parallelism, code=f"words:{code}", **{"fields": ("word",)} | more)

    def read(source: str, kind: GroupingKind, *fields: str) -> InputSpec:
        return InputSpec(source, "default", GroupingSpec(kind, fields))

    components = (
        spec("sentences", "Sentences", 2, config={"user.rate": 200}),
        spec("stop_words", "StopWords", 1),
        spec(split, "Split", 2, "sentences"),
        spec(count, "Count", 3, read(split, GroupingKind.FIELDS, "word"), read("stop_words", GroupingKind.ALL)),
        spec(rank, "Rank", 1, read(count, GroupingKind.GLOBAL)),
        spec(store, "Store", 2, rank, split, fields=()),
    )
    config = {
        "topology.reliability.mode": "ATLEAST_ONCE", "user.api.token": "s3cr3t-token",
        "user.database": "postgresql://heron:s3cr3t-pass@db/words",
        "topology.environment": {"DB_PASSWORD": "s3cr3t-env", "LANG": "C"},
    }  # fmt: skip
    return topology_spec(name, *components, number="0001", config=config)


class StubTopology:
    """Topology in ``store`` whose servers run on a loop in a thread until ``close``."""

    def __init__(
        self, store: StateStore, root: Path, definition: TopologyDefinition | None = None, *, cluster: str = "local"
    ) -> None:
        self.store = store
        self.definition = definition or word_count()
        self.name = self.definition.name
        self.packing = round_robin_packing(self.definition, 2)
        folder = place_of(root, cluster, "ada", "default", self.name)
        self.launch = Launch(
            cluster, "ada", "default", self.name, self.definition.id, "", str(folder), str(folder / "run"), HOST
        )
        self.launch.log_dir.mkdir(parents=True)
        write_secrets(folder)
        self.causes: tuple[Cause, ...] = ()
        self.states: dict[str, ProcessState] = {}
        self.errors: dict[str, str] = {}
        self.tasks_state = NO_STATE
        self.master_delay_seconds = 0.0
        self.clock = time.time  # of the metric store
        self.calls: list[str] = []
        self.metrics = MetricStore(time.time() - 60 * MINUTES)
        self._servers: dict[str, grpc.aio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"played {self.name}", daemon=True)
        self._thread.start()
        now = time.time()
        self.execution = ExecutionState(
            self.name, self.definition.id, cluster, "ada", "default", TopologyState.RUNNING, "ada", now - 60 * MINUTES,
            "0.1.0", str(folder),
        )  # fmt: skip
        topologies.submit(store, self.definition, self.packing, self.execution)
        self._write_logs()
        self._on_loop(self._serve())

    def close(self) -> None:
        """Stop the servers."""
        self._on_loop(self._stop_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def kill_master(self) -> None:
        """Stop the master's server; its node stays, as for a moment after a kill -9."""
        self._on_loop(self._servers.pop("master").stop(None))

    def write(self, process: str, text: str) -> None:
        """Append to a log."""
        with open(self.launch.log_dir / f"{process}.log", "a") as log:
            log.write(text)

    def press(self, component: str) -> None:
        """Let the first task of a component cause backpressure."""
        task = next(i for i in self.packing.instances() if i.component == component)
        container = next(c.container for c in self.packing.containers if task in c.instances)
        self.causes = (Cause(CauseKind.TASK, component, task.task, container),)

    def pause(self) -> None:
        """Store the paused state."""
        path = paths.execution_state(self.name)
        node = self.store.get(path)
        assert node is not None
        state = message_codecs.EXECUTION_STATE.decode(node.data)
        paused = ExecutionState(*(getattr(state, f) for f in state.__slots__[:5]), TopologyState.PAUSED,
                                *(getattr(state, f) for f in state.__slots__[6:]))  # fmt: skip
        self.store.commit([Set(path, message_codecs.EXECUTION_STATE.encode(paused))])

    def kill(self) -> None:
        """Remove the topology from the store."""
        topologies.kill(self.store, self.name)
        for path in (paths.master(self.name), paths.scheduler(self.name),
                     *(paths.container(self.name, n) for n in (0, 1, 2))):  # fmt: skip
            if self.store.get(path) is not None:
                self.store.commit([Delete(path)])

    def report(self, now: float | None = None, *, minutes: int = MINUTES) -> None:
        """Publish the metrics of ``minutes`` of work, one report every 30 seconds."""
        end = now or time.time()
        start = end - 60 * minutes
        for step in range(1, 60 * minutes // STEP_SECONDS + 1):
            at = start + step * STEP_SECONDS
            for plan in self.packing.containers:
                reports = [self._report_of(plan.container, i, start, at, step) for i in plan.instances]
                reports.append(self._report_of_manager(plan.container, start, at, step))
                self.metrics.publish(at, PublishMetrics(plan.container, tuple(reports)))
            self.metrics.publish(at, PublishMetrics(0, (self._report_of_master(start, at, step),)))

    def _report_of(self, container: int, i: InstancePlan, start: float, at: float, step: int) -> ProcessMetrics:
        spec = self.definition.component(i.component)
        done = step * STEP_SECONDS * (400 + 35 * i.task)
        counters = {"__busy-time-ms": 1000.0 * step * 18, "__idle-time-ms": 1000.0 * step * 11,
                    "__backpressured-time-ms": 1000.0 * step, "__py-user-cpu-time-secs": 16.0 * step,
                    "__py-sys-cpu-time-secs": 2.0 * step}  # fmt: skip
        if spec.outputs:
            counters["__emit-count/default"] = float(done)
        milliseconds = Sketch.of([4 + i.task, 6, 9, 14, 30])
        sketches = {}
        if spec.is_spout:
            counters |= {"__ack-count/default": float(done), "__fail-count/default": float(step * 2),
                         f"__failed-by-reason/exception/{self.definition.components[2].name}": float(step),
                         "__failed-by-reason/timeout": float(step)}  # fmt: skip
            sketches["__complete-latency/default"] = milliseconds
        else:
            source = spec.inputs[0].component
            counters |= {f"__execute-count/{source}/default": float(done), f"__ack-count/{source}/default": float(done)}
            sketches[f"__process-latency/{source}/default"] = milliseconds
            sketches[f"__queue-latency/{source}/default"] = Sketch.of([3, 5, 8, 12, 28])
            sketches[f"__execute-latency/{source}/default"] = Sketch.of([0.2, 0.4, 0.9])
        grown = {n: encode_sketch(Sketch({k: c * step for k, c in s.bins.items()})) for n, s in sketches.items()}
        raised: tuple[ExceptionReport, ...] = ()
        name = instance_id(container, i.component, i.task)
        if i.component.startswith("split"):
            raised = (ExceptionReport(i.component, name, "ValueError", "invalid literal for int(): 'bird'", TRACEBACK,
                                      step, start, at),)  # fmt: skip
        wave = 1 + math.sin(step / 5 + i.task)
        gauges = {"__py-physical-memory-byte": 41.5 * 2**20 + i.task * 2**20, "__py-fd-count": 14.0,
                  "__event-loop-lag-ms": 1.5 + 2 * wave}  # fmt: skip
        if spec.is_spout:
            gauges |= {"__pending-acked-count": 120 + 40 * wave, "__spout-lag-ms": 60 + 45 * wave}
        else:
            gauges["__gateway-in-stream-queue-size"] = 90_000 * wave
        return ProcessMetrics(i.component, name, container, i.task, 1, at, counters, gauges, grown, raised, start)

    def _report_of_manager(self, container: int, start: float, at: float, step: int) -> ProcessMetrics:
        counters = {"__server/__tuples_to_workers": 9000.0 * step, "__process/__cpu_user_usec": 9e6 * step}
        gauges = {"__process/__mem_used_bytes": 62.0 * 2**20, "__tracked_roots": 312.0}
        counters["__server/__time_spent_back_pressure_aggr"] = 900.0 * step
        return ProcessMetrics("__stmgr__", f"stream_manager-{container}", container, 0, 1, at, counters, gauges, {}, (),
                              start)  # fmt: skip

    @staticmethod
    def _report_of_master(start: float, at: float, step: int) -> ProcessMetrics:
        gauges = {"__topology-lag-ms": 110 + 45 * math.sin(step / 5), "__used-cpu-cores": 6.6,
                  "__reserved-cpu-cores": 11.0, "__used-memory-bytes": 690.0 * 2**20,
                  "__reserved-memory-bytes": 2048.0 * 2**20}  # fmt: skip
        return ProcessMetrics("__tmanager__", "topology_master-0", 0, 0, 1, at, {"__plans_made": 3.0,
                              "__stream_manager_deaths": 1.0}, gauges, {}, (), start)  # fmt: skip

    def _processes(self, container: int) -> Sequence[ProcessStatus]:
        named: list[tuple[str, str, str, int]] = [("heron_container", f"heron_container-{container}", "", 0)]
        if container == 0:
            named.append(("topology_master", "topology_master-0", "", 0))
        else:
            named.append(("stream_manager", f"stream_manager-{container}", "", 0))
        named.append(("metrics_manager", f"metrics_manager-{container}", "", 0))
        if container:
            plan = self.packing.container(container)
            named += [("heron_instance", instance_id(container, i.component, i.task), i.component, i.task)
                      for i in plan.instances]  # fmt: skip
        since = self.execution.submitted_at + 2
        return [
            ProcessStatus(kind, name, container, component, task, 4000 + 40 * container + n,
                          self.states.get(name, ProcessState.RUNNING), since, 0, self.errors.get(name, ""))
            for n, (kind, name, component, task) in enumerate(named)
        ]  # fmt: skip

    def _write_logs(self) -> None:
        for container in (0, 1, 2):
            for process in self._processes(container):
                times = ((n, f"2026-11-21 09:{n // 60:02}:{n % 60:02},000") for n in range(400))
                self.write(process.name, "".join(f"{at} INFO    words: batch {n} done\n" for n, at in times))

    def _on_loop(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _serve(self) -> None:
        identity = identity_of(self.launch)

        def answering(method: str, answer: Callable[[Any], Any]) -> Callable[..., Awaitable[Any]]:
            async def handle(request: Any, _: Any) -> Any:
                self.calls.append(method)
                await asyncio.sleep(self.master_delay_seconds)
                return answer(request)

            return handle

        master = MASTER_SERVICE.handler(
            Status=answering("Status", lambda _: self._master_status()),
            Metrics=answering("Metrics", lambda r: self.metrics.metrics(self.clock(), r)),
            Timeline=answering("Timeline", lambda r: self.metrics.timeline(self.clock(), r)),
            Exceptions=answering("Exceptions", self.metrics.exceptions),
        )
        server, port = make_server(identity, f"{HOST}:0", [master])
        self._servers["master"] = server
        await server.start()
        location = MasterLocation(self.definition.id, HOST, port, 3, os.getpid())
        nodes = [(paths.master(self.name), message_codecs.MASTER_LOCATION.encode(location))]

        async def scheduler_status(_: Any, __: Any) -> SchedulerStatus:
            own = ProcessStatus("heron_scheduler", "heron_scheduler", 0, "", 0, os.getpid(), ProcessState.RUNNING, 1.0)
            return SchedulerStatus(own)

        handler = SCHEDULER_SERVICE.handler(Status=scheduler_status)
        scheduler, port = make_server(identity, f"{HOST}:0", [handler])
        self._servers["scheduler"] = scheduler
        await scheduler.start()
        placed = SchedulerLocation(self.definition.id, HOST, port, os.getpid())
        nodes.append((paths.scheduler(self.name), message_codecs.SCHEDULER_LOCATION.encode(placed)))
        for number in (0, 1, 2):

            def status(number: int = number) -> ContainerStatus:
                return ContainerStatus(number, HOST, 1, tuple(self._processes(number)))

            self._servers[f"container {number}"], port = await serve(self.launch, status)
            here = ContainerLocation(self.definition.id, number, HOST, port, os.getpid(), 1, 40_000 + number)
            nodes.append((paths.container(self.name, number), message_codecs.CONTAINER_LOCATION.encode(here)))
        managers = tuple(StreamManagerInfo(n, HOST, 50_000 + n, 1, 4000 + n) for n in (1, 2))
        plan = plan_of(self.definition, self.packing, PlanVersion(3, 1), managers)
        nodes.append((paths.physical_plan(self.name), message_codecs.PHYSICAL_PLAN.encode(plan)))
        self.store.commit([Create(path, data) for path, data in nodes])

    def _master_status(self) -> MasterStatus:
        first = StreamManagerStatus(1, True, 0.2, bool(self.causes), self.causes)
        managers = (first, StreamManagerStatus(2, True, 0.3))
        return MasterStatus(3, TopologyState.RUNNING, PlanVersion(3, 1), managers, tasks_state=self.tasks_state)

    async def _stop_all(self) -> None:
        for server in self._servers.values():
            await server.stop(None)
