"""The topology master as a process: gRPC in front, the state store behind, the core between.

One asyncio task owns the core, and all input reaches it as events in its inbox. Handlers only decode, enqueue and
await. Requests for metrics are answered at once from the metric store, which decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import Manifest
from heron_runtime.model.records import MasterLocation
from heron_runtime.model.settings import Keys, setting
from heron_runtime.net.identity import identity_of
from heron_runtime.net.rpc import MASTER_SERVICE, make_server
from heron_runtime.process import ProcessPhase
from heron_runtime.state.store import StateStore
from heron_runtime.telemetry.recorder import Telemetry
from heron_runtime.telemetry.reporter import MetricsReporter
from heron_runtime.wire.control import Leave, PlanUpdate
from heron_runtime.wire.master import (
    HeartbeatReply,
    MasterStatus,
    PublishMetrics,
    PublishReply,
    RestoreState,
    SetState,
    StatusRequest,
    TakeCheckpoint,
)
from heron_runtime.wire.metrics import ProcessMetrics
from topology_master.core import events as e
from topology_master.core.master import NOT_LEADING, TopologyMaster
from topology_master.core.metric_store import MetricStore, topology_gauges
from topology_master.shell.manifests import ManifestFiles
from topology_master.shell.service import StreamManagerLinks
from topology_master.shell.store import MasterStore

TICKS_PER_LEASE = 10
MAX_TICK_SECONDS = 1.0
SET_STATE_SECONDS = 10.0
LATE_CHECKPOINT = "no checkpoint is complete after {:g} s; it continues, and `heron status` shows what delays it"
MOST_WAIT_SECONDS = 1_800.0  # for a checkpoint, which may be waited for for twice the longest timeout
LEAVE_GRACE_SECONDS = 0.5
FIRST_EPOCH = 1
COUNTED_FROM_ZERO = (
    "__stream_manager_deaths", "__stream_managers_lapsed", "__registrations_refused", "__metric_series_refused",
)  # fmt: skip

log = logging.getLogger(__name__)


class _Refused(Exception):
    """A refused request. ``final``: a retry at once would fail again."""

    def __init__(self, why: str, final: bool) -> None:
        super().__init__(why)
        self.final = final


class TopologyMasterProcess:
    """Topology master process. ``start`` serves; ``stopped`` is set when it should end."""

    def __init__(self, launch: Launch, store: StateStore, container: int = 0) -> None:
        self.launch = launch
        self.stopped = asyncio.Event()
        self.phase = ProcessPhase.STARTING
        name = f"topology_master-{container}"
        self.telemetry = Telemetry("__tmanager__", name, container, 0, time.time_ns())
        for counter in COUNTED_FROM_ZERO:
            self.telemetry.count(counter, 0)
        self._store_client = store
        self._container = container
        self._inbox: asyncio.Queue[e.Event] = asyncio.Queue()
        self._links = StreamManagerLinks(self._inbox.put_nowait)
        self._requests: dict[int, asyncio.Future[MasterStatus]] = {}
        self._request_numbers = itertools.count(1)
        self._metrics = MetricStore(time.time())
        self._reported: set[str] = set()  # gauges of the topology that were ever reported
        self._files = ManifestFiles(launch, self._inbox.put_nowait, self._not_removed)
        self._reporter = MetricsReporter(launch, container, self._report)
        self._tasks: list[asyncio.Task[None]] = []
        self._server: grpc.aio.Server | None = None
        self._keeps_history = setting(launch.settings, Keys.HERON_HISTORY_ENABLED)
        self._lease = setting(launch.settings, Keys.HERON_MASTER_LEASE_SECS)
        self.port = 0

    async def start(self) -> None:
        """Bind, open the store and stand for election.

        Raises:
            StoreError: The store cannot be opened.
            OSError: The port cannot be bound.
        """
        identity = await asyncio.to_thread(identity_of, self.launch)
        handler = MASTER_SERVICE.handler(
            StreamManager=self._links.serve,
            SetState=self._set_state,
            TakeCheckpoint=self._take_checkpoint,
            RestoreState=self._restore_state,
            Status=self._status,
            PublishMetrics=self._if_acting(self._publish_metrics),
            Metrics=self._if_acting(lambda request: self._metrics.metrics(time.time(), request)),
            Timeline=self._if_acting(lambda request: self._metrics.timeline(time.time(), request)),
            Exceptions=self._if_acting(lambda request: self._metrics.exceptions(request)),
        )
        self._server, self.port = make_server(identity, f"{self.launch.bind_host}:0", [handler])
        own = (self.launch.host, self.port, os.getpid())
        utc = time.time() - time.monotonic()
        self._core = TopologyMaster(
            self.launch.topology_id, own, int(self._lease * 1000), self.launch.package_digest, utc
        )
        location = MasterLocation(self.launch.topology_id, self.launch.host, self.port, 0, os.getpid(), self._container)
        self._store = MasterStore(
            self._store_client, self.launch, location, self._inbox.put_nowait, self._files.add_manifest
        )
        await self._server.start()
        await self._store.open()
        for work, name in ((self._store.run(), "store"), (self._own_core(), "core"), (self._tick(), "tick")):
            task = asyncio.create_task(work, name=name)
            task.add_done_callback(self._task_ended)
            self._tasks.append(task)
        self._reporter.start()

    async def stop(self) -> None:
        """Release the mastership at once, then end. Idempotent."""
        for task in self._tasks:
            task.remove_done_callback(self._task_ended)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        self._files.close()
        with contextlib.suppress(Exception):  # an unavailable store releases the node automatically
            await self._store.close()
        self._links.close_all()
        self.telemetry.settle(time.time())
        await self._reporter.stop()
        if self._server is not None:
            await self._server.stop(LEAVE_GRACE_SECONDS)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("%s failed; the process ends and is started again", task.get_name(), exc_info=task.exception())
            os._exit(1)  # a master whose core is broken must not hold the mastership

    async def _own_core(self) -> None:
        while True:
            event = await self._inbox.get()
            for effect in self._core.handle(time.monotonic_ns() // 1_000_000, event):
                self._act(effect)
            if self.phase is not ProcessPhase.RUNNING and isinstance(event, e.StoreRead):
                self.phase = ProcessPhase.RUNNING  # it leads, or knows who does

    async def _tick(self) -> None:
        interval = min(MAX_TICK_SECONDS, self._lease / TICKS_PER_LEASE)
        while True:
            wanted_ms = self._core.tick_ms
            await asyncio.sleep(interval if wanted_ms is None else min(interval, wanted_ms / 1000))
            if self._core.acting:
                self._inbox.put_nowait(e.MasterTick())

    def _act(self, effect: e.Effect) -> None:
        match effect:
            case e.ReadStore() | e.Campaign() | e.Resign() | e.CommitTransaction():
                self._store.request(effect)
            case e.SendPlan(links, plan, epoch):
                for link in links:
                    self._links.send(link, PlanUpdate(plan, epoch))
            case e.WriteManifest():
                self._files.write(effect)
            case e.RemoveOldCheckpoints():
                self._files.remove(effect)
            case e.SendHeartbeatReply(link, epoch, holder, wish):
                self._links.send(link, HeartbeatReply(epoch, holder, wish))
            case e.RejectStreamManager(link, reason):
                self._links.send(link, Leave(reason, self._core.epoch))
                self._links.close(link)
            case e.CloseLinks(links):
                for link in links:
                    self._links.close(link)
            case e.AnswerRequest():
                self._answer(effect)
            case e.StartLeading(epoch):
                self._metrics = MetricStore(time.time(), is_first=epoch == FIRST_EPOCH)
            case e.TopologyKilled(reason):
                log.info("ending: %s", reason)
                self.stopped.set()
            case e.LogNote(text, metric):
                if text:
                    log.info("%s", text)
                if metric:
                    self.telemetry.count(metric)
            case e.EmitEvent(kind, what, text, detail):
                if self._keeps_history:
                    self.telemetry.happened(kind, text, time.time(), detail, what=what)

    def _not_removed(self) -> None:
        self.telemetry.count("__checkpoint-removals-failed")

    def _answer(self, answer: e.AnswerRequest) -> None:
        future = self._requests.pop(answer.number, None)
        if future is None or future.done():
            return
        if answer.status is not None:
            future.set_result(answer.status)
        else:
            future.set_exception(_Refused(answer.error, answer.final))

    async def _set_state(self, request: SetState, context: grpc.aio.ServicerContext) -> MasterStatus:
        return await self._ask(context, lambda number: e.StateRequested(number, request.state, request.epoch))

    async def _restore_state(self, request: RestoreState, context: grpc.aio.ServicerContext) -> MasterStatus:
        manifests: dict[int, Manifest | None] = {}
        if request.checkpoint:
            try:
                manifests = await self._files.manifests()
            except OSError as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, f"checkpoints cannot be read: {error}")
        return await self._ask(
            context,
            lambda number: e.RestoreRequested(
                number, request.epoch, request.checkpoint, request.repeat_output, manifests
            ),
        )

    async def _take_checkpoint(self, request: TakeCheckpoint, context: grpc.aio.ServicerContext) -> MasterStatus:
        seconds = min(request.wait_seconds, MOST_WAIT_SECONDS)
        wait = seconds > 0  # not for NaN
        return await self._ask(
            context,
            lambda number: e.CheckpointRequested(number, wait, request.epoch, request.hold),
            seconds if wait else SET_STATE_SECONDS,
            LATE_CHECKPOINT if wait else "",
        )

    async def _ask(
        self,
        context: grpc.aio.ServicerContext,
        event: Callable[[int], e.Event],
        seconds: float = SET_STATE_SECONDS,
        late: str = "",
    ) -> MasterStatus:
        number = next(self._request_numbers)
        future: asyncio.Future[MasterStatus] = asyncio.get_running_loop().create_future()
        self._requests[number] = future
        self._inbox.put_nowait(event(number))
        try:
            async with asyncio.timeout(seconds):
                return await future
        except _Refused as error:
            code = grpc.StatusCode.FAILED_PRECONDITION if error.final else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, str(error))
        except TimeoutError:
            code = grpc.StatusCode.FAILED_PRECONDITION if late else grpc.StatusCode.UNAVAILABLE
            await context.abort(code, late.format(seconds) if late else f"not stored within {seconds:g} s; try again")
        finally:
            self._requests.pop(number, None)
        raise AssertionError("abort does not return")

    async def _status(self, _: StatusRequest, __: Any) -> MasterStatus:
        return self._core.status()

    def _if_acting(self, answer: Callable[[Any], Any]) -> Callable[[Any, grpc.aio.ServicerContext], Awaitable[Any]]:
        async def handle(request: Any, context: grpc.aio.ServicerContext) -> Any:
            if not self._core.acting:
                await context.abort(grpc.StatusCode.UNAVAILABLE, NOT_LEADING)
            return answer(request)

        return handle

    def _publish_metrics(self, request: PublishMetrics) -> PublishReply:
        refused = self._metrics.refused
        self._metrics.publish(time.time(), request)
        if self._metrics.refused > refused:
            self.telemetry.count("__metric_series_refused", self._metrics.refused - refused)
        return PublishReply(self._core.epoch)

    def _report(self) -> ProcessMetrics:
        for name, value in {**self._core.gauges(), "__metric_series": self._metrics.series}.items():
            self.telemetry.gauge(name, value)
        # A former leader reports 0 for the topology, so that sums over masters are right. A lag that spouts no longer
        # report is 0.
        gauges = topology_gauges(self._metrics, self._core.packing, time.time()) | self._core.state_gauges()
        self._reported |= gauges.keys()
        for name in self._reported:
            self.telemetry.gauge(name, gauges.get(name, 0.0) if self._core.acting else 0.0)
        return self.telemetry.report(time.time())
