"""Gateway thread: the link between an instance and its stream manager.

One asyncio loop, two framed streams (``docs/explanation/internals.md`` section 3). One write is in flight on each;
messages that queue up meanwhile go with the next packet. Only frames wait for upload credit. When a stream ends, both
are closed and opened again with back-off. Messages that were sent and are not known to be taken are lost and counted;
waiting ones go on the next stream. After an outage the backlog is sent before anything is read. A link begins with a
proof of identity, then the hellos.

The executor thread calls ``post``, ``offer_credit`` and ``close`` at any time; it is woken through the inbox. A wake-up
of the loop is the most expensive step here, so one serves everything that gathers until the loop runs.

With checkpoints a link belongs to a generation, named in its hello. ``leave_generation`` ends the link, forgets waiting
messages, and continues with a link that carries no frames, so that the next plan arrives; ``join`` opens one of the
generation whose state has been loaded. When that one ends, it is not opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from heron_instance.core.flow_control import DownloadCredit, UploadQueue
from heron_instance.core.outbox import Flush
from heron_instance.shell.flush_timer import FlushTimer
from heron_instance.shell.inbox import (
    CommandArrived,
    Inbox,
    LeaveRequested,
    Linked,
    PauseChanged,
    PlanArrived,
    StreamManagerLinked,
    Unlinked,
    WakeUp,
    WeightsChanged,
)
from heron_runtime.launch import Launch
from heron_runtime.model.checkpoints import CheckpointCommand, TaskReport
from heron_runtime.model.ids import PROTOCOL_VERSION
from heron_runtime.net.frames import Tag
from heron_runtime.net.handshake import LinkRefused
from heron_runtime.net.link import EOF, LinkStream, connect
from heron_runtime.wire.control import (
    CallDuration,
    Credit,
    InstanceHello,
    Leave,
    Pause,
    PlanUpdate,
    StreamManagerHello,
    TaskWeights,
)
from heron_runtime.wire.data import Packet
from heron_runtime.wire.errors import MalformedMessage
from heron_runtime.wire.metrics import ProcessMetrics

HELLO_SECONDS = 10.0
FIRST_DELAY_SECONDS = 0.05
LAST_DELAY_SECONDS = 2.0
CLOSE_SECONDS = 1.0
BACKLOG_SECONDS = 2.0
log = logging.getLogger(__name__)


class LinkReplaced(Exception):
    """The stream manager has asked this process to leave."""


class LinkFault(Exception):
    """The link is unusable; a new one must be opened."""


@dataclass(frozen=True)
class LinkSetup:
    """Identity of a link, and the counter of its metrics."""

    launch: Launch
    container: int
    task: int
    incarnation: int
    count: Callable[[str, float], None]
    key: str = field(repr=False)  # shared by stream manager and task


async def open_stream(setup: LinkSetup, stream: Tag) -> LinkStream:
    """Open one of the two streams and prove the identity. Raises OSError, LinkRefused, MalformedMessage."""
    launch = setup.launch
    path = launch.stream_manager_socket(setup.container)
    return await connect(path, setup.key, stream, launch.topology_id, setup.task, setup.incarnation)


async def say_hello(setup: LinkSetup, control: LinkStream, generation: int) -> StreamManagerHello:
    """Exchange hellos with the stream manager. Raises LinkReplaced, LinkFault, OSError."""
    topology_id = setup.launch.topology_id
    await control.write(
        InstanceHello(PROTOCOL_VERSION, topology_id, setup.task, setup.incarnation, os.getpid(), generation)
    )
    hello = await control.read()
    if isinstance(hello, Leave):
        raise LinkReplaced(hello.reason)
    if not isinstance(hello, StreamManagerHello):
        raise LinkFault("the stream manager did not answer with a hello")
    if hello.protocol != PROTOCOL_VERSION:
        raise LinkFault(f"protocol mismatch: stream manager {hello.protocol}, this instance {PROTOCOL_VERSION}")
    return hello


def require_message(message: Any) -> Any:
    """Return the result of a read if it is a message. Raises LinkFault at the end of the stream."""
    if message is EOF:
        raise LinkFault("the stream manager has closed the link")
    return message


class Gateway:
    """Owner of the link. Calls of the executor thread before ``run`` begins take effect then."""

    def __init__(self, setup: LinkSetup, inbox: Inbox) -> None:
        self._setup = setup
        self._inbox = inbox
        self._outgoing = UploadQueue()
        self._posted: deque[Flush] = deque()
        self._woken = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Event
        self._control_work: asyncio.Event
        self._closing = False
        self._download = DownloadCredit()
        self._generation = 0  # of the next link; with checkpoints, a link of generation 0 carries no frames
        self._relink = asyncio.Event()
        self._leaving: Future[None] | None = None  # the last call of ``leave_generation``
        self._forget: Future[None] | None = None  # done when the link is down and waiting messages are forgotten
        self._ended = False  # ``run`` has returned
        self._task_report: TaskReport | None = None
        self._reported_task_report: TaskReport | None = None
        self.planned_generation = 0  # of the newest plan
        self._in_call_ms = self._reported_in_call_ms = 0
        self._incarnation_seen: int | None = None
        self._linked = False
        self._collect: Callable[[], ProcessMetrics]
        self._report_due = True  # the first one goes at once
        self._reported: asyncio.Event
        self._streams: tuple[tuple[str, str], ...] = ()  # of the newest plan: number to (component, stream)
        self.sent_weight = 0  # sent or lost: the executor takes the difference out of data-out
        self._wake_for_room = False  # the executor waits for room in data-out
        self.flush_timer = FlushTimer(self.post, self.wake)

    # For the executor thread.

    def post(self, flushes: list[Flush]) -> None:
        """Send these flushes."""
        self._posted.extend(flushes)
        self.wake()

    def offer_credit(self, total_weight: int, tuple_weight: int) -> None:
        """Offer credit for frames of this total weight; a tuple weighs ``tuple_weight`` for the executor."""
        self._download.offer(total_weight, tuple_weight)
        self.wake()

    def record_taken(self, taken_weight: int) -> None:
        """Record the total weight of the frames taken by the executor."""
        self._download.taken_weight = taken_weight

    def request_wake_for_room(self) -> None:
        """Put ``WakeUp`` into the inbox once frames have left data-out."""
        self._wake_for_room = True

    def report_task(self, report: TaskReport) -> None:
        """Send this report to the master, now and with each new link."""
        self._task_report = report
        self.wake()

    def leave_generation(self) -> None:
        """End the link and forget waiting messages. Return when none of them can arrive any more.

        Returns at once after the end of ``run``, since ``LeaveRequested`` is in the inbox then.
        """
        done = self._leaving = Future()
        self._call(self._leave, done)
        if not self._ended:  # else ``run`` sets the result at its end
            done.result()

    def join(self, generation: int) -> None:
        """Open a link of this generation. ``Linked`` is put into the inbox once it carries frames."""
        self._call(self._set_generation, generation)

    def close(self) -> None:
        """Send the waiting messages, then let ``run`` return."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Make the loop check for work."""
        if not self._woken and self._loop is not None:
            self._woken = True
            self._call(self._woke)

    def _call(self, callback: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None, "a plan has come, so the loop runs"
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed
            pass

    # On the loop.

    def request_report(self) -> None:
        """Send a metrics report as soon as there is a link."""
        self._report_due = True
        self._reported.clear()
        self._control_work.set()

    def report_call_time(self, milliseconds: int) -> None:
        """Report how long user code has been in one call; 0: not for long."""
        if milliseconds != self._in_call_ms:
            self._in_call_ms = milliseconds
            self._control_work.set()

    def report_taken(self) -> None:
        """Report the taken weight once a second, so that little counts as lost with the link."""
        if self._download.report_taken():
            self._control_work.set()

    def _set_generation(self, generation: int) -> None:
        self._generation = generation
        self._relink.set()

    def _leave(self, done: Future[None]) -> None:
        self._forget = done
        self._set_generation(0)

    def _forget_all(self) -> None:
        """Forget everything while the link is down: the next executor begins from nothing."""
        self._posted.clear()
        self._outgoing, self._download, self.sent_weight, self._task_report = UploadQueue(), DownloadCredit(), 0, None
        if self._forget is not None and not self._forget.done():
            self._forget.set_result(None)
        self._forget = None

    async def run(self, collect: Callable[[], ProcessMetrics]) -> None:
        """Keep the link until ``close``, or until asked to leave. ``collect`` makes the metrics reports."""
        self._collect = collect
        self._work, self._control_work, self._reported = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._woke()
        try:
            await self._keep_linked()
        except LinkReplaced as error:
            self._inbox.put(LeaveRequested(str(error)))
        finally:
            self._ended = True  # first: a call of ``leave_generation`` sees this, or is seen here
            if self._leaving is not None and not self._leaving.done():
                self._leaving.set_result(None)

    def _woke(self) -> None:
        self._woken = False
        while self._posted:
            self._outgoing.put(self._posted.popleft())
        self.flush_timer.on_wake()
        self._work.set()
        self._control_work.set()

    async def _keep_linked(self) -> None:
        quiet, delay, fault = False, FIRST_DELAY_SECONDS, ""
        while not self._finished():
            level = logging.DEBUG if quiet else logging.INFO
            try:
                await self._link()
                reason = "closed"
            except (MalformedMessage, LinkRefused) as error:
                reason = str(error)
                level = logging.DEBUG if reason == fault else logging.WARNING
                fault = reason
            except (LinkFault, OSError) as error:
                reason = str(error)
            if self._finished():
                return
            if self._relink.is_set():
                self._relink.clear()
                if self._forget is not None:
                    self._forget_all()
                quiet, delay = True, FIRST_DELAY_SECONDS
                continue
            # The first failures after a start only mean that the stream manager is not up yet.
            log.log(level, "no link to the stream manager (%s)", reason)
            quiet = True
            if self._closing:
                return
            delay = FIRST_DELAY_SECONDS if self._linked else delay
            self._linked = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._relink.wait()
            delay = min(LAST_DELAY_SECONDS, 2 * delay)

    def _finished(self) -> bool:
        return self._closing and not self._posted and self._outgoing.empty()

    async def _link(self) -> None:
        """Run one connection. Returns or raises when it ends."""
        setup = self._setup
        control: LinkStream | None = None
        data: LinkStream | None = None
        parts: list[asyncio.Task[Any]] = []
        generation = 0
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                control = await open_stream(setup, Tag.CONTROL)
                generation = self._generation
                if self._forget is None:  # this is the requested link
                    self._relink.clear()
                hello = await say_hello(setup, control, generation)
            self._outgoing.begin_stream()
            self._download.begin_stream()
            self._reported_in_call_ms, self._reported_task_report = 0, None
            self._inbox.put(StreamManagerLinked(hello.incarnation))
            if self._incarnation_seen is not None:
                log.info("linked again to stream manager %d", hello.incarnation)
                setup.count("__gateway-reconnect-count", 1)
            self._incarnation_seen = hello.incarnation
            async with asyncio.timeout(HELLO_SECONDS):
                data = await open_stream(setup, Tag.DATA)
            self._linked = True
            if generation:
                self._inbox.put(Linked(generation))
            backlog_sent = asyncio.Event()
            self._work.set()
            self._control_work.set()
            loop = asyncio.get_running_loop()
            parts = [
                loop.create_task(self._read_control(control.read)),
                loop.create_task(self._write_control(control.write)),
                loop.create_task(self._write_data(data, backlog_sent)),
                loop.create_task(self._read_data(data.read, backlog_sent)),
                loop.create_task(self._relink.wait()),
            ]
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:  # in this order: a Leave on the control stream counts more than the end of the other
                if part.done():
                    part.result()
        except TimeoutError:
            raise LinkFault("the stream manager did not answer in time") from None
        finally:
            for stream in (data, control):
                if stream is not None:
                    stream.cancel()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            counter = "__gateway-stale-generation" if generation else "__gateway-lost-on-break"
            for number, tuples in self._outgoing.end_stream().items():
                setup.count(f"{counter}/{self._stream_name(number)}", tuples)
            if generation and generation == self._generation:
                self._generation = 0  # never opened again
                self._inbox.put(Unlinked(generation))

    async def _read_control(self, read: Callable[[], Awaitable[Any]]) -> None:
        while True:
            message = require_message(await read())
            if isinstance(message, Credit):
                self._outgoing.grant(message.limit_bytes, message.taken_bytes)
                self._work.set()
            elif isinstance(message, PlanUpdate):
                self._streams = message.plan.streams
                self.planned_generation = max(self.planned_generation, message.plan.generation.number)
                self._inbox.put(PlanArrived(message.plan))
            elif isinstance(message, CheckpointCommand):
                self._inbox.put(CommandArrived(message))
            elif isinstance(message, Pause):
                if message.causes:
                    log.debug("paused: %s", "; ".join(map(str, message.causes)))
                self._inbox.put(PauseChanged(message.paused))
            elif isinstance(message, TaskWeights):
                self._inbox.put(WeightsChanged({one.task: one.bytes for one in message.tasks}))
            elif isinstance(message, Leave):
                raise LinkReplaced(message.reason)

    async def _write_control(self, write: Callable[[Any], Awaitable[Any]]) -> None:
        """Send credit for frames, and reports."""
        while True:
            credit = self._download.take_update()
            if credit is not None:
                await write(credit)
                continue
            report = self._task_report
            if report is not None and report != self._reported_task_report:
                self._reported_task_report = report
                await write(report)
                continue
            if self._in_call_ms != self._reported_in_call_ms:
                self._reported_in_call_ms = self._in_call_ms
                await write(CallDuration(self._in_call_ms))
                continue
            if self._report_due:
                self._report_due = False
                await write(self._collect())
                self._reported.set()
                continue
            self._control_work.clear()
            await self._control_work.wait()

    async def _write_data(self, data: LinkStream, backlog_sent: asyncio.Event) -> None:
        setup, write = self._setup, data.write
        while True:
            taken = self._outgoing.take()
            if taken is None:
                backlog_sent.set()
                if self._finished():
                    await self._last_report()
                    # The other end answers with its own end, after it has read everything; that ends the reader.
                    await data.done_writing()
                    await asyncio.sleep(CLOSE_SECONDS)
                    return
                self._work.clear()
                await self._work.wait()
                continue
            packet, weight = taken
            try:
                await write(packet)
            finally:
                self._room_made(weight)
            setup.count("__gateway-sent-packets-count", 1)
            setup.count("__gateway-sent-packets-size", _frame_bytes(packet))

    async def _last_report(self) -> None:
        self.request_report()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._reported.wait()

    def _stream_name(self, number: int) -> str:
        return self._streams[number][1] if number < len(self._streams) else str(number)

    def _room_made(self, weight: int) -> None:
        self.sent_weight += weight
        if self._wake_for_room and weight:
            self._wake_for_room = False
            self._inbox.put(WakeUp())

    async def _read_data(self, read: Callable[[], Awaitable[Any]], backlog_sent: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(BACKLOG_SECONDS):
                await backlog_sent.wait()
        except TimeoutError:
            pass  # without credit the backlog may depend on messages to read
        expected = 1
        put, count = self._inbox.put, self._setup.count
        while True:
            packet: Packet = require_message(await read())
            if packet.sequence != expected:
                count("__gateway-sequence-fault-count", 1)
                raise LinkFault(f"packet {packet.sequence} came where {expected} was due")
            expected += 1
            self._download.receive(sum([frame.weight() for frame in packet.frames]))
            put(packet)
            self.flush_timer.on_input()
            count("__gateway-received-packets-count", 1)
            if packet.frames:
                count("__gateway-received-packets-size", _frame_bytes(packet))


def _frame_bytes(packet: Packet) -> int:
    return sum([frame.size_bytes() for frame in packet.frames])
