"""Queries to the processes of topologies: topology masters, schedulers and ``heron_container``.

Every call has a deadline. Answers are cached for a second, so a hundred open pages cost a master as much as one, and
calls in progress are shared. A process that did not answer is not asked again for a few seconds, so a dead master
delays one request and not all. Channels are cached per topology and address, and closed when idle.

Limits: ``MAX_ANSWERS`` cached answers, ``MAX_CHANNELS`` channels, ``MAX_CALLS`` calls at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import grpc
import grpc.aio

from heron_control.inspection.process_requests import (
    DEADLINE_SECS,
    ProcessRequest,
    ProcessUnreachable,
    answers_of,
    identity_of_record,
    status_requests,
    to_container,
    to_master,
)
from heron_control.inspection.topology_status import ProcessReplies
from heron_runtime.model.records import TopologyRecord
from heron_runtime.net.identity import Identity
from heron_runtime.net.rpc import make_channel
from heron_tracker.self_metrics import TrackerMetrics

FRESH_SECONDS = 1.0
SILENCE_SECONDS = 4.0
IDLE_SECONDS = 120.0
MAX_ANSWERS = 4096
MAX_CHANNELS = 2048
MAX_CALLS = 128
Address = tuple[str, str]  # topology id, and host:port; topologies share no channel


class SharedProcessClient:
    """Client of all processes, shared by all requests. Belongs to one event loop."""

    def __init__(self, counters: TrackerMetrics, deadline_seconds: float = DEADLINE_SECS) -> None:
        self._counters = counters
        self._deadline = deadline_seconds
        self._channels: OrderedDict[Address, tuple[grpc.aio.Channel, float]] = OrderedDict()
        self._answers: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        self._silent: dict[Address, tuple[float, ProcessUnreachable]] = {}
        self._slots = asyncio.Semaphore(MAX_CALLS)

    async def close(self) -> None:
        """Close all channels."""
        for call in list(self._under_way.values()):
            call.cancel()
        for channel, _ in self._channels.values():
            with contextlib.suppress(Exception):
                await channel.close()
        self._channels.clear()

    async def ask_master(self, record: TopologyRecord, method: str, request: Hashable) -> Any:
        """Ask the topology master. Raises ProcessUnreachable."""
        return await self._shared(record, to_master(record, method, request))

    async def ask_container(self, record: TopologyRecord, container: int, method: str, request: Hashable) -> Any:
        """Ask a container's ``heron_container``, without the cache, since logs grow. Raises ProcessUnreachable."""
        return await self._call(record, to_container(record, container, method, request))

    async def ask_all(self, record: TopologyRecord, *, exceptions: bool = False) -> ProcessReplies:
        """Ask scheduler, containers and master for their status, and return the answers within the deadline."""
        questions = status_requests(record, exceptions=exceptions)
        requests = (self._shared(record, question) for question in questions.values())
        replies = await asyncio.gather(*requests, return_exceptions=True)
        return answers_of(record, dict(zip(questions, replies, strict=True)))

    async def _shared(self, record: TopologyRecord, question: ProcessRequest) -> Any:
        """Share one call among equal questions and keep its answer for FRESH_SECONDS. Raises ProcessUnreachable."""
        key = (record.definition.id, question.address, question.service.name, question.method, question.request)
        cached = self._answers.get(key)
        if cached is not None and time.monotonic() - cached[0] < FRESH_SECONDS:
            return cached[1]
        waiting = self._under_way.get(key)
        if waiting is None:
            waiting = self._under_way[key] = asyncio.ensure_future(self._call(record, question))
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

    async def _call(self, record: TopologyRecord, question: ProcessRequest) -> Any:
        identity = await _identity(record)
        address = (identity.topology_id, question.address)
        known = self._silent.get(address)
        if known is not None and time.monotonic() - known[0] < SILENCE_SECONDS:
            raise ProcessUnreachable(str(known[1]), known[1].code)
        call = question.service.call(self._channel(address, identity), question.method)
        try:
            async with asyncio.timeout(2 * self._deadline), self._slots:
                answer = await call(question.request, metadata=identity.metadata(), timeout=self._deadline)
        except (grpc.aio.AioRpcError, TimeoutError) as error:
            waited = self._deadline * (2 if isinstance(error, TimeoutError) else 1)
            failure = question.no_answer(error, waited)
            self._counters.call_failed(question.service.name, question.method)
            if failure.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                self._remember_silence(address, failure)
            raise failure from None
        self._silent.pop(address, None)
        return answer

    def _remember_silence(self, address: Address, failure: ProcessUnreachable) -> None:
        now = time.monotonic()
        self._silent[address] = (now, failure)
        if len(self._silent) > MAX_CHANNELS:
            self._silent = {a: s for a, s in self._silent.items() if now - s[0] < SILENCE_SECONDS}

    def _channel(self, address: Address, identity: Identity) -> grpc.aio.Channel:
        now = time.monotonic()
        known = self._channels.get(address)
        channel = known[0] if known is not None else make_channel(address[1], identity)
        self._channels[address] = (channel, now)
        self._channels.move_to_end(address)
        while len(self._channels) > MAX_CHANNELS or now - next(iter(self._channels.values()))[1] > IDLE_SECONDS:
            _, (old, _) = self._channels.popitem(last=False)
            task = asyncio.ensure_future(old.close(grace=2 * self._deadline))
            task.add_done_callback(lambda done: done.exception())
        return channel


async def _identity(record: TopologyRecord) -> Identity:
    """Return the topology's key. Raises ProcessUnreachable."""
    name, user = record.definition.name, record.execution.submission_user
    try:
        return await asyncio.to_thread(identity_of_record, record)
    except PermissionError:
        raise ProcessUnreachable(
            f"the tracker may not read the key of {name}; run it as {user or 'its owner'}"
        ) from None
    except (OSError, ValueError):
        raise ProcessUnreachable(f"the key of {name} is not on this machine") from None
