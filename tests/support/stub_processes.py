"""A topology whose processes are gRPC servers in this process with chosen answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heron_cli.home import Home
from heron_control.schedulers.topology_folder import identity_in, place_of, write_secrets
from heron_runtime.model.ids import instance_id
from heron_runtime.model.plan import PackingPlan
from heron_runtime.model.records import ContainerLocation, ExecutionState, MasterLocation, SchedulerLocation
from heron_runtime.model.topology import TopologyDefinition, TopologyState
from heron_runtime.net.rpc import CONTAINER_SERVICE, MASTER_SERVICE, SCHEDULER_SERVICE, make_server
from heron_runtime.state import open_store, paths, topologies
from heron_runtime.state.store import Create, Set
from heron_runtime.wire import message_codecs
from heron_runtime.wire.container import (
    ContainerStatus,
    FileData,
    ProcessState,
    ProcessStatus,
    RestartReply,
    SchedulerStatus,
)
from heron_runtime.wire.master import ExceptionsReply, MasterStatus, MetricsReply
from tests.support.definitions import component, packing_of, plan_of, topology_spec

NAME = "words"


def definition(name: str = NAME) -> TopologyDefinition:
    """Return a topology with a spout ``word`` and a bolt ``count`` of two tasks."""
    count = component("count", "word", parallelism=2, fields=(), code="m:Count")
    return topology_spec(name, component("word", fields=("word",), code="m:Word"), count, number="abc")


def packing(name: str = NAME) -> PackingPlan:
    """Return a plan with one task in container 1, two in container 2."""
    return packing_of(name, {1: {1: "word"}, 2: {2: "count", 3: "count"}})


def execution(home: str, role: str = "me", submitted_at: float = 1000.0) -> ExecutionState:
    """Return the state of a submitted topology."""
    state = TopologyState.RUNNING
    return ExecutionState(NAME, f"{NAME}-abc", "local", role, "default", state, role, submitted_at, "1", home)


def process(
    kind: str, name: str, container: int, state: ProcessState = ProcessState.RUNNING, **more: Any
) -> ProcessStatus:
    """Return the status of a process."""
    fields = {"component": "", "task": 0, "pid": 4242, "since": 1001.0, **more}
    return ProcessStatus(kind=kind, name=name, container=container, state=state, **fields)


class StubProcesses:
    """State in ``HERONRY_HOME`` and the servers of master, scheduler and containers."""

    def __init__(self, root: Path, config: Mapping[str, Any] | None = None) -> None:
        self.home = Home(root)
        self.definition = replace(definition(), config=config or {})
        self.place = place_of(root, "local", "me", "default", NAME)
        (self.place / "log-files").mkdir(parents=True)
        write_secrets(self.place)
        self.identity = identity_in(self.place, f"{NAME}-abc")
        root.chmod(0o700)
        self.store = open_store(self.home.state_store("local").url)
        self.store.open()
        topologies.submit(self.store, self.definition, packing(), execution(str(self.place)))
        self.loop = asyncio.new_event_loop()
        self.servers: list[grpc.aio.Server] = []
        self.asked: list[Any] = []
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def close(self) -> None:
        """Stop everything."""
        for server in self.servers:
            self._do(server.stop(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.store.close()

    def serve(self, service: Any, **answers: Any) -> int:
        """Start a server with these answers (values, or functions of the request); return its port."""

        def implementation(answer: Any) -> Callable[..., Any]:
            async def reply(request: Any, context: grpc.aio.ServicerContext) -> Any:
                self.asked.append(request)
                found = answer(request) if callable(answer) else answer
                if isinstance(found, tuple) and isinstance(found[0], grpc.StatusCode):
                    await context.abort(*found)
                return found

            return reply

        async def start() -> int:
            handler = service.handler(**{name: implementation(answer) for name, answer in answers.items()})
            server, port = make_server(self.identity, "127.0.0.1:0", [handler])
            await server.start()
            self.servers.append(server)
            return port

        return self._do(start())

    def publish(self, path: str, data: bytes) -> None:
        """Write a location."""
        self.store.commit([Create(path, data) if self.store.get(path) is None else Set(path, data)])

    def add_master(
        self, status: MasterStatus | Callable[[Any], MasterStatus], metrics: MetricsReply, **answers: Any
    ) -> None:
        """Add a topology master and its physical plan."""
        answers.setdefault("Exceptions", ExceptionsReply())
        port = self.serve(MASTER_SERVICE, Status=status, Metrics=metrics, **answers)
        location = MasterLocation(f"{NAME}-abc", "127.0.0.1", port, 1)
        self.publish(paths.master(NAME), message_codecs.MASTER_LOCATION.encode(location))
        plan = plan_of(self.definition, packing())
        self.publish(paths.physical_plan(NAME), message_codecs.PHYSICAL_PLAN.encode(plan))

    def add_scheduler(self, *containers: ProcessStatus) -> None:
        """Add a scheduler with these containers."""
        status = SchedulerStatus(process("heron_scheduler", "heron_scheduler", 0), containers)
        port = self.serve(SCHEDULER_SERVICE, Status=status, Restart=lambda r: RestartReply((r.container,)))
        location = SchedulerLocation(f"{NAME}-abc", "127.0.0.1", port)
        self.publish(paths.scheduler(NAME), message_codecs.SCHEDULER_LOCATION.encode(location))

    def add_container(self, number: int, *processes: ProcessStatus, files: dict[str, bytes] | None = None) -> None:
        """Add a container with these processes and log files."""
        own = process("heron_container", f"heron_container-{number}", number)

        def read(request: Any) -> Any:
            data = (files or {}).get(request.path)
            if data is None:
                return grpc.StatusCode.NOT_FOUND, "no such log"
            start = max(len(data) + request.offset, 0) if request.offset < 0 else request.offset
            return FileData(start, data[start : start + request.length], len(data))

        status = ContainerStatus(number, "127.0.0.1", 1, (own, *processes))
        port = self.serve(CONTAINER_SERVICE, Status=status, ReadFile=read)
        location = ContainerLocation(f"{NAME}-abc", number, "127.0.0.1", port, 4242, 1)
        self.publish(paths.container(NAME, number), message_codecs.CONTAINER_LOCATION.encode(location))

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)


def all_processes(number: int) -> list[ProcessStatus]:
    """Return the processes of container ``number`` in a healthy topology."""
    manager = process("metrics_manager", f"metrics_manager-{number}", number)
    if number == 0:
        return [process("topology_master", "topology_master-0", 0), manager]
    instances = [
        process("heron_instance", instance_id(number, i.component, i.task), number, component=i.component, task=i.task)
        for i in packing().container(number).instances
    ]
    return [process("stream_manager", f"stream_manager-{number}", number), manager, *instances]
