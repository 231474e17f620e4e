"""Questions to the processes of topologies: topology masters, schedulers, ``heron_container``.

Every call has a deadline. Answers are kept for a second, so a hundred open pages cost a master no more than one, and a
process that did not answer is not asked again for a few seconds: a dead master delays one request, not every one. Calls
that are under way are shared. Channels are kept per address and closed when they have not been used for a while.

Bounds: MAX_ANSWERS kept answers, MAX_CHANNELS channels, MAX_CALLS calls at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from heron_tracker.shell.self_metrics import Counters
from heronry.inspection.topology_status import HERON_SCHEDULER, TOPOLOGY_MASTER, Answers
from heronry.model.record import TopologyRecord
from heronry.net.rpc import Service, credentials, make_channel
from heronry.net.services import CONTAINER_SERVICE, MASTER_SERVICE, SCHEDULER_SERVICE
from heronry.wire.container import ContainerStatus, ContainerStatusRequest, SchedulerStatusRequest
from heronry.wire.master import ExceptionsRequest, StatusRequest

DEADLINE_SECONDS = 2.0
FRESH_SECONDS = 1.0
SILENCE_SECONDS = 4.0
IDLE_SECONDS = 120.0
MAX_ANSWERS = 4096
MAX_CHANNELS = 2048
MAX_CALLS = 128

log = logging.getLogger(__name__)


class NoAnswer(Exception):
    """A process did not answer, or refused; ``code`` is gRPC's, None when nobody could be asked."""

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class Asker:
    """Asks on behalf of all requests. Belongs to one loop."""

    def __init__(self, counters: Counters, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._counters = counters
        self._deadline = deadline_seconds
        self._channels: OrderedDict[str, tuple[grpc.aio.Channel, float]] = OrderedDict()
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        self._silent: dict[str, tuple[float, NoAnswer]] = {}
        self._slots = asyncio.Semaphore(MAX_CALLS)

    async def close(self) -> None:
        """Close all channels."""
        for call in list(self._under_way.values()):
            call.cancel()
        for channel, _ in self._channels.values():
            with contextlib.suppress(Exception):
                await channel.close()
        self._channels.clear()

    async def master(self, record: TopologyRecord, method: str, request: Hashable) -> Any:
        """Ask the topology master. Raises NoAnswer."""
        if record.master is None:
            name = record.definition.name
            raise NoAnswer(f"{name} has no topology master at this moment; try again in a few seconds")
        return await self._shared(record, record.master, MASTER_SERVICE, method, request, "the topology master")

    async def container(self, record: TopologyRecord, container: int, method: str, request: Hashable) -> Any:
        """Ask a container's ``heron_container``; never from memory, since logs grow. Raises NoAnswer."""
        location = record.container(container)
        if location is None:
            raise NoAnswer(f"container {container} of {record.definition.name} is not there at this moment")
        return await self._call(record, location, CONTAINER_SERVICE, method, request, f"container {container}")

    async def everybody(self, record: TopologyRecord, *, exceptions: bool = False) -> Answers:
        """The status of scheduler, containers and master, as far as they answer within the deadline."""
        questions: dict[str, Any] = {}
        if record.scheduler is not None:
            questions[HERON_SCHEDULER] = self._shared(
                record, record.scheduler, SCHEDULER_SERVICE, "Status", SchedulerStatusRequest(), "the scheduler"
            )
        if record.master is not None:
            questions[TOPOLOGY_MASTER] = self.master(record, "Status", StatusRequest())
            if exceptions:
                questions["exceptions"] = self.master(record, "Exceptions", ExceptionsRequest())
        for location in record.containers:
            questions[f"heron_container-{location.container}"] = self._shared(
                record, location, CONTAINER_SERVICE, "Status", ContainerStatusRequest(), "it"
            )
        replies = dict(zip(questions, await asyncio.gather(*questions.values(), return_exceptions=True), strict=True))
        errors = {name: str(reply) for name, reply in replies.items() if isinstance(reply, BaseException)}
        found: dict[str, Any] = {name: reply for name, reply in replies.items() if name not in errors}
        containers: dict[int, ContainerStatus] = {
            c.container: found[name]
            for c in record.containers
            if (name := f"heron_container-{c.container}") in found
        }
        reported = found.get("exceptions")
        return Answers(
            found.get(HERON_SCHEDULER), containers, found.get(TOPOLOGY_MASTER),
            reported.exceptions if reported else (), errors,
        )  # fmt: skip

    async def _shared(
        self, record: TopologyRecord, location: Any, service: Service, method: str, request: Hashable, who: str
    ) -> Any:
        """One call for all who ask the same at the same time; its answer is kept for FRESH_SECONDS. Raises NoAnswer."""
        key = (record.definition.id, location.host, location.port, service.name, method, request)
        kept = self._answers.get(key)
        if kept is not None and time.monotonic() - kept[0] < FRESH_SECONDS:
            return kept[1]
        waiting = self._under_way.get(key)
        if waiting is None:
            call = self._call(record, location, service, method, request, who)
            waiting = self._under_way[key] = asyncio.ensure_future(call)
            waiting.add_done_callback(lambda done: self._arrived(key, done))
        return await asyncio.shield(waiting)

    def _arrived(self, key: Hashable, done: asyncio.Future[Any]) -> None:
        self._under_way.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        self._answers[key] = (time.monotonic(), done.result())
        self._answers.move_to_end(key)
        while len(self._answers) > MAX_ANSWERS or (
            self._answers and time.monotonic() - next(iter(self._answers.values()))[0] > FRESH_SECONDS
        ):
            self._answers.popitem(last=False)

    async def _call(
        self, record: TopologyRecord, location: Any, service: Service, method: str, request: object, who: str
    ) -> Any:
        address = f"{location.host}:{location.port}"
        known = self._silent.get(address)
        if known is not None and time.monotonic() - known[0] < SILENCE_SECONDS:
            raise NoAnswer(str(known[1]), known[1].code)
        metadata = credentials(await _secret(record), record.definition.id)
        call = service.call(self._channel(address), method)
        try:
            async with asyncio.timeout(2 * self._deadline), self._slots:
                answer = await call(request, metadata=metadata, timeout=self._deadline)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            failure = _no_answer(error, who, self._deadline)
            self._counters.call_failed(service.name, method)
            if failure.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                self._remember_silence(address, failure)
            raise failure from None
        self._silent.pop(address, None)
        return answer

    def _remember_silence(self, address: str, failure: NoAnswer) -> None:
        now = time.monotonic()
        self._silent[address] = (now, failure)
        if len(self._silent) > MAX_CHANNELS:
            self._silent = {a: s for a, s in self._silent.items() if now - s[0] < SILENCE_SECONDS}

    def _channel(self, address: str) -> grpc.aio.Channel:
        now = time.monotonic()
        known = self._channels.get(address)
        channel = known[0] if known is not None else make_channel(address)
        self._channels[address] = (channel, now)
        self._channels.move_to_end(address)
        while len(self._channels) > MAX_CHANNELS or now - next(iter(self._channels.values()))[1] > IDLE_SECONDS:
            _, (old, _) = self._channels.popitem(last=False)
            task = asyncio.ensure_future(old.close(grace=2 * self._deadline))
            task.add_done_callback(lambda done: done.exception())
        return channel


async def _secret(record: TopologyRecord) -> str:
    """The topology's secret, which only its owner may read. Raises NoAnswer."""
    file = Path(record.execution.home, "secret")
    try:
        return (await asyncio.to_thread(file.read_text)).strip()
    except PermissionError:
        name, user = record.definition.name, record.execution.submission_user
        raise NoAnswer(f"the tracker may not read the secret of {name}; run it as {user or 'its owner'}") from None
    except (OSError, UnicodeDecodeError):
        raise NoAnswer(f"the secret of {record.definition.name} is not on this machine") from None


def _no_answer(error: Exception, who: str, deadline: float) -> NoAnswer:
    if not isinstance(error, grpc.aio.AioRpcError):
        return NoAnswer(f"{who} did not answer within {2 * deadline:g} s", grpc.StatusCode.DEADLINE_EXCEEDED)
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoAnswer(f"{who} did not answer within {deadline:g} s", code)
    if code is grpc.StatusCode.UNAVAILABLE:
        return NoAnswer(f"{who} is not there: nobody answers at its address", code)
    return NoAnswer(error.details() or code.name, code)
